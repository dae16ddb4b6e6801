"""The first article of the Universal Declaration of Human Rights in nineteen languages, and encodings that pages used.

Each entry has the top-level domain of a country with the language, encodings by their standard names, and the text.
"""

from __future__ import annotations

_ARTICLES = """
de: windows-1252 ISO-8859-15 macintosh
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen
begabt und sollen einander im Geiste der Brüderlichkeit begegnen.

fr: windows-1252 ISO-8859-15
Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de
conscience et doivent agir les uns envers les autres dans un esprit de fraternité.

es: windows-1252
Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y
conciencia, deben comportarse fraternalmente los unos con los otros.

pl: ISO-8859-2 windows-1250
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem
i sumieniem i powinni postępować wobec innych w duchu braterstwa.

cz: ISO-8859-2 windows-1250
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a
mají spolu jednat v duchu bratrství.

hu: ISO-8859-2 windows-1250
Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és
lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.

ru: windows-1251 KOI8-R ISO-8859-5 IBM866
Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и
должны поступать в отношении друг друга в духе братства.

ua: windows-1251 KOI8-U
Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і совістю і
повинні діяти у відношенні один до одного в дусі братерства.

bg: windows-1251
Всички хора се раждат свободни и равни по достойнство и права. Те са надарени с разум и съвест и следва
да се отнасят помежду си в дух на братство.

gr: ISO-8859-7 windows-1253
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με
λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα αδελφοσύνης.

tr: windows-1254
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve
birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.

lt: windows-1257 ISO-8859-13
Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Jiems suteiktas protas ir sąžinė ir jie turi
elgtis vienas kito atžvilgiu kaip broliai.

il: windows-1255 ISO-8859-8-I
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם לנהוג
איש ברעהו ברוח של אחוה.

eg: windows-1256 ISO-8859-6
يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً وعليهم أن يعامل بعضهم بعضاً
بروح الإخاء.

th: windows-874
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม
และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ

jp: Shift_JIS EUC-JP ISO-2022-JP
すべての人間は、 生まれながらにして自由であり、 かつ、 尊厳と権利とについて平等である。 人間は、
理性と良心とを授けられており、 互いに同胞の精神をもって行動しなければならない。

kr: EUC-KR
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을
부여받았으며 서로 형제애의 정신으로 행동하여야 한다.

cn: GBK gb18030
人人生而自由, 在尊严和权利上一律平等。 他们赋有理性和良心, 并应以兄弟关系的精神相对待。

tw: Big5
人人生而自由, 在尊嚴和權利上一律平等。 他們賦有理性和良心, 並應以兄弟關係的精神互相對待。
"""


def _read() -> dict[str, tuple[list[str], str]]:
    articles = {}
    for paragraph in _ARTICLES.strip().split("\n\n"):
        head, _, text = paragraph.partition("\n")
        country, _, encodings = head.partition(": ")
        articles[country] = (encodings.split(), " ".join(text.split()))
    return articles


ARTICLES = _read()
