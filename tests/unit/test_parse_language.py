"""The language of a page: what it declares, what its words say, and when neither is believed."""

from __future__ import annotations

import pytest

from drumlin.parse.language import SAMPLE_BYTES, detected_language, page_language
from tests.harness.parsing import parse

ENGLISH = "The value of this parameter is used when the server is started, and it can be changed for each session. "
GERMAN = "Der Wert dieses Parameters wird verwendet, wenn der Server gestartet wird, und er kann auch nicht leer sein. "
RUSSIAN = (
    "Значение этого параметра используется при запуске сервера, и если оно не задано, то сервер не будет работать. "
)
SQL = """
SELECT name, count(*) FROM cities c LEFT JOIN weather w USING (city) WHERE temp_lo BETWEEN 10 AND 20 GROUP BY 1;
INSERT INTO films VALUES ('UA502', 'Bananas', 105, '1971-07-13', 'Comedy', '82 minutes');
ALTER TABLE distributors ADD CONSTRAINT zipchk CHECK (char_length(zipcode) = 5) NO INHERIT;
"""
API = (
    "boost::mpl::vector_c<int, 0, 1> template<typename T0, typename Tn> struct fold_impl operator[] const T0& xs; " * 5
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (ENGLISH, "eng"),
        (GERMAN, "deu"),
        (RUSSIAN, "rus"),
        ("La valeur de ce paramètre est utilisée pour le démarrage du serveur, et elle ne peut pas être vide. ", "fra"),
        (
            "El valor de este parámetro se usa para iniciar el servidor, y no puede estar vacío por más que sea. ",
            "spa",
        ),
        (
            "O valor deste parâmetro não pode ser vazio, e é usado para iniciar o servidor em que os dados estão. ",
            "por",
        ),
        ("Il valore di questo parametro non può essere vuoto, ed è usato per avviare il server con la rete. ", "ita"),
        (
            "De waarde van deze parameter wordt gebruikt om de server te starten en het is niet leeg voor een sessie. ",
            "nld",
        ),
        (
            "Værdien af denne parameter bruges til at starte serveren, og den kan ikke være tom når den er efter det. ",
            "dan",
        ),
        ("Wartość tego parametru jest używana przez serwer i nie może być pusta, jak się to robi dla sesji. ", "pol"),
        ("Giá trị của tham số này được dùng khi máy chủ khởi động và không thể để trống cho các phiên. ", "vie"),
        ("この値はサーバーの起動時に使われます。空にすることはできません。設定ファイルを参照してください。", "jpn"),
        ("该参数的值在服务器启动时使用，不能为空。请参阅配置文件以了解更多信息和其他选项的说明。", "zho"),
        ("이 매개변수의 값은 서버가 시작될 때 사용되며 비워 둘 수 없습니다. 설정 파일을 참조하십시오.", "kor"),
        ("Η τιμή αυτής της παραμέτρου χρησιμοποιείται κατά την εκκίνηση και δεν μπορεί να είναι κενή. ", "ell"),
    ],
)
def test_prose_is_recognised(text: str, code: str) -> None:
    assert detected_language((text * 3).encode()) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2.8. Сохранить\n2. Меню «Файл»\nЭта команда запускает Раздел 5.6, «Сохранить файл».\nНедавние файлы", "rus"),
        ("Цвет в альфа-канал\nМеню «Слой»\nЭто аналог команды Слой → Прозрачность: «Цвет в канал альфа…».", "rus"),
        ("Справка по использованию клавиатуры и мыши\nСодержание\nФайл — Справка по клавишам для меню Файл", "rus"),
        ("Запазване на файла. Тази команда отваря прозореца за запазване на изображението във файл.", "bul"),
        ("Ця команда відкриває вікно збереження файлу. Меню Файл, Зберегти як. Недавні файли.", "ukr"),
        ("Оваа команда го отвора прозорецот за зачувување на сликата. Мени Датотека, Зачувај како.", "mkd"),
    ],
)
def test_the_letters_of_a_short_text_tell_russian_from_its_neighbours(text: str, code: str) -> None:
    assert detected_language(text.encode()) == code


def test_prose_decides_where_most_of_a_page_is_code() -> None:
    assert detected_language((SQL * 3 + ENGLISH * 3 + SQL * 3).encode()) == "eng"


@pytest.mark.parametrize("text", [SQL, API, "x = 1\n" * 200, "0x1f " * 500, "short"])
def test_what_is_in_no_language_gets_none(text: str) -> None:
    assert detected_language(text.encode()) == ""


def test_the_middle_of_a_long_text_counts() -> None:
    menu = "Index Modules API v2.0 Build 77 \n" * (SAMPLE_BYTES // 45)
    assert detected_language((menu + GERMAN * 400).encode()) == "deu"


def test_code_in_japanese_prose_does_not_make_it_english() -> None:
    prose = "この値はサーバーの起動時に使われます。空にすることはできません。"
    assert detected_language((prose + "if the value is in the list of names, return it " + prose * 3).encode()) == "jpn"


FRAMES = {
    "ara": "الفصل الخامس. نظام الحزم السابق التالي المحتويات",
    "ell": "Κεφάλαιο 5. Το σύστημα πακέτων Προηγούμενο Επόμενο",
    "rus": "Глава 5. Система пакетов Предыдущая Следующая Содержание",
    "zho": "第五章软件包系统上一页下一页目录",
    "jpn": "第五章パッケージシステムの使い方、前のページへ、次のページへ",
}
INDONESIAN = (
    "Nilai dari parameter ini digunakan untuk menjalankan server, dan tidak dapat kosong jika anda akan yang lain. "
)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_english_prose_in_a_translated_frame_is_english(frame: str) -> None:
    assert detected_language(f"{frame}\n{ENGLISH * 4}\n{frame}".encode()) == "eng"


@pytest.mark.parametrize("language", FRAMES)
def test_names_and_code_do_not_hide_the_language_around_them(language: str) -> None:
    prose = FRAMES[language] * 3
    assert detected_language(f"{prose}\n{SQL}\n{prose}\n{API[:300]}\n{prose}".encode()) == language


@pytest.mark.parametrize(("one", "other"), [(ENGLISH, INDONESIAN), (GERMAN, ENGLISH), (RUSSIAN, ENGLISH)])
def test_a_page_that_is_half_in_one_language_and_half_in_another_gets_none(one: str, other: str) -> None:
    assert detected_language((one * 5 + other * 5).encode()) == ""


def test_the_language_of_most_of_a_page_counts_not_that_of_its_ends_and_middle() -> None:
    stretch = ENGLISH * 15
    page = stretch + INDONESIAN * 80 + stretch + INDONESIAN * 80 + stretch
    assert detected_language(page.encode()) == "ind"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "Du kan se ved hjælp af menuen, hvad der er valgt ved start. Det bliver ændret, og det sker ved hvert",
            "dan",
        ),
        (
            "Du kan se ved hjelp av menyen hva som er valgt ved start. Det blir endret, og det skjer ved hvert",
            "nor",
        ),
        (
            "Den kan bruges, hvis systemet bliver startet med en disk, og den har ikke sig selv til det ved de første",
            "dan",
        ),
        (
            "Den kan brukes hvis systemet blir startet med en disk, og den har ikke seg selv til det ved de første",
            "nor",
        ),
    ],
)
def test_words_that_only_one_of_two_languages_has_tell_them_apart(text: str, code: str) -> None:
    assert detected_language(text.encode()) == code


def test_a_declared_language_is_believed_unless_the_script_says_otherwise() -> None:
    assert page_language("eng", (GERMAN * 3).encode()) == "eng"
    assert page_language("deu,fra", (GERMAN * 3).encode()) == "deu,fra"
    assert page_language("eng", (RUSSIAN * 3).encode()) == "rus"
    assert page_language("jpn", (ENGLISH * 3).encode()) == "eng"
    assert page_language("rus", SQL.encode()) == "rus"
    assert page_language("rus", b"") == "rus"


def test_a_page_of_xml_may_declare_its_language_the_other_way() -> None:
    page = parse(b'<html xml:lang="de"><p>x', "application/xhtml+xml", "")
    assert page.languages == "deu"
