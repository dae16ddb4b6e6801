"""Finds the languages of a page, as Common Crawl writes them: ISO 639-3 codes, comma separated.

A page's own declaration counts, unless its script contradicts it: `lang="en"` of a template around Russian text is a
mistake. If nothing is declared, the text decides: first by its function words, since letter statistics alone take API
pages and code for Latin or Czech; statistics (resiliparse) decide between languages that share these words, and for
other alphabets. If neither is sure enough, or a text is in two languages, no language is given.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import NamedTuple

import numpy
from resiliparse.parse.lang import detect_fast

from drumlin.parse.function_words import LANGUAGES_BY_WORD, WORDED

LANGUAGES_MAX = 3
DETECT_BYTES_MIN = 60
SAMPLE_BYTES = 4_500
"""How much of a text is looked at, in evenly spread stretches, because pages often begin with a menu."""
STRETCHES = 10
SCRIPT_SAMPLE_BYTES = 1_500
STRETCHES_FOR_SCRIPT = 3
"""Less text, in fewer stretches, where only the script matters: nearly any stretch shows it."""

EVIDENCE_MIN = 4
"""How many function words of a language a text must have."""


class _Needed(NamedTuple):
    """How many different function words a text must have to be in a language, and their least share of all words."""

    kinds: int
    share: float


# In prose a third of the words are function words. Names in code are mostly made of English words, and some of those
# are by chance function words of other languages; so other languages need more evidence than English.
NEEDED_ENGLISH = _Needed(3, 0.05)
NEEDED = _Needed(5, 0.09)
RIVAL_SHARE = 0.8
"""A language with at least this share of the best one's evidence is a rival; letter statistics then decide."""

OWN_WORDS_MIN = 2
"""Among rivals, a language with at least so many words that the others lack wins without letter statistics."""
MIXED_SHARE = 0.5
"""If a second language has this share of the first one's evidence, the text counts as mixed and gets no language."""
PROSE_CHARS = 18
"""Characters of prose per function word; about every third word is one."""
CHARACTERS_WORTH = 2.5
"""How many letters of an alphabet say as much as one character of Chinese, Japanese or Korean."""

RANK_MAX = 1_200
"""By resiliparse's documentation, a result with a higher rank is usually wrong."""
RANK_SURE_MAX = 300
"""Below this rank none of 4,442 English pages was taken for another language; in the next hundred 13 of 2,964 were."""

OTHER_SCRIPT_SHARE_MIN = 0.2
"""A text is in a script other than Latin if at least this share of its bytes belongs to characters of such scripts."""
OTHER_SCRIPT_SHARE_NONE = 0.01
"""With a smaller share than this, a text is not in such a script, whatever the page declares."""
CHARACTERS_SHARE_MIN = 0.1
"""The least share of kana in a Japanese text, and of Hangul in a Korean one."""

# Characters from Greek on, in UTF-8; but not general punctuation and symbols.
_OTHER_LEAD_MIN = 0xCD
_SYMBOL_LEAD = 0xE2
_WIDE_LEAD_MIN = 0xE0
# The Latin letters of Vietnamese begin with E1 and then B8 to BB.
_VIETNAMESE = (0xE1, 0xB8)
_VIETNAMESE_MASK = 0xFC
_WIDE_CHARACTER_MIN = 0x3041
# Kana, Hangul and Chinese characters.
_CHARACTERS = ((0x3041, 0x30FF), (0xAC00, 0xD7A3), (0x4E00, 0x9FFF))
_WORD = re.compile(r"[^\W\d_]+")
_ASCII = bytes(range(0x80))
_ASCII_WORDS = re.compile(r"[\x00-\x7f]+")
_OTHER_SCRIPTS_CODES = """
ara asm bak bel ben bod bul che chv div ell fas guj heb hin hye jpn kan kat kaz khm kir kor lao mal mar mkd mon mya nep
ori oss pan pus rus san sin snd tam tat tel tgk tha tir uig ukr urd yid zho
"""
_OTHER_SCRIPTS = frozenset(_OTHER_SCRIPTS_CODES.split())
"""Languages that are not written in Latin letters, or seldom."""

# Letter statistics of a short text often take Russian for a language with nearly the same alphabet. So a text in such a
# language must contain one of the language's own letters, and no letter that the language does not have.
_OWN_LETTERS = {
    "bak": "әөүҙҫғҡһ",
    "bel": "іў",
    "che": "ӏ",
    "chv": "ӑӗҫӳ",
    "kaz": "әғқңөұүһі",
    "kir": "өүң",
    "mkd": "ѓќѕјљњџ",
    "mon": "өү",
    "oss": "ӕæ",
    "tat": "әөүҗңһ",
    "tgk": "ғӣқӯҳҷ",
    "ukr": "іїєґ",
}
_FOREIGN_LETTERS = {"bul": "ыэё", "mkd": "ыэёйщьъюя", "rus": "іїєґўјљњћђџәөү", "ukr": "ыэёъ", "bel": "ищъ"}
_CYRILLIC = ("rus", "bul", "ukr", "bel")

# ISO 639-1 (with a few withdrawn codes that pages still use) and, run together, ISO 639-3.
_FIVES = """
aaaar ababk aeave afafr akaka amamh anarg arara asasm avava ayaym azaze babak bebel bgbul bhbih bibis bmbam bnben
bobod brbre bsbos cacat ceche chcha cocos crcre csces cuchu cvchv cycym dadan dedeu dvdiv dzdzo eeewe elell eneng
eoepo esspa etest eueus fafas ffful fifin fjfij fofao frfra fyfry gagle gdgla glglg gngrn guguj gvglv hahau heheb
hihin hohmo hrhrv hthat huhun hyhye hzher iaina idind ieile igibo iiiii ikipk inind ioido isisl itita iuiku iwheb
jajpn jiyid jvjav jwjav kakat kgkon kikik kjkua kkkaz klkal kmkhm knkan kokor krkau kskas kukur kvkom kwcor kykir
lalat lbltz lglug lilim lnlin lolao ltlit lulub lvlav mgmlg mhmah mimri mkmkd mlmal mnmon moron mrmar msmsa mtmlt
mymya nanau nbnob ndnde nenep ngndo nlnld nnnno nonor nrnbl nvnav nynya ococi ojoji omorm orori ososs papan pipli
plpol pspus ptpor quque rmroh rnrun roron rurus rwkin sasan scsrd sdsnd sesme sgsag shhbs sisin skslk slslv smsmo
snsna sosom sqsqi srsrp ssssw stsot susun svswe swswa tatam tetel tgtgk ththa titir tktuk tltgl tntsn toton trtur
tstso tttat twtwi tytah uguig ukukr ururd uzuzb veven vivie vovol wawln wowol xhxho yiyid yoyor zazha zhzho zuzul
"""
_THREE_LETTERS = {five[:2]: five[2:] for five in _FIVES.split()}
_TWO_LETTERS = {five[2:]: five[:2] for five in _FIVES.split()}
_KNOWN = frozenset(_THREE_LETTERS.values())
# The codes of ISO 639-2/B, which differ from 639-3 for these languages.
_SIXES = """
albsqi armhye baqeus burmya chizho czeces dutnld frefra geokat gerdeu greell iceisl macmkd maomri maymsa perfas
rumron sloslk tibbod welcym
"""
_BIBLIOGRAPHIC = {six[:3]: six[3:] for six in _SIXES.split()}


@functools.lru_cache(maxsize=1024)
def language_codes(tags: str) -> str:
    """The codes of language tags such as `en-GB` or `de, fr`; empty when none is known."""
    codes = (_code(tag) for tag in tags.split(",", LANGUAGES_MAX)[:LANGUAGES_MAX])
    return ",".join(dict.fromkeys(filter(None, codes)))


def _code(tag: str) -> str:
    primary = tag.strip().lower().replace("_", "-").partition("-")[0]
    code = _THREE_LETTERS.get(primary) or _BIBLIOGRAPHIC.get(primary, primary)
    return code if code in _KNOWN else ""


def page_language(declared: str, text: bytes) -> str:
    """The languages of a page, from its declaration and its text; empty when they are not known."""
    if not declared:
        return detected_language(text)
    sample = _sample(text, SCRIPT_SAMPLE_BYTES, STRETCHES_FOR_SCRIPT)
    if len(sample) < DETECT_BYTES_MIN or _fits(declared.partition(",")[0], sample):
        return declared
    return detected_language(text) or declared


def detected_language(text: bytes) -> str:
    """The code of the language a text seems to be in; empty when that is not clear."""
    return _detected(_sample(text, SAMPLE_BYTES, STRETCHES)) if len(text) >= DETECT_BYTES_MIN else ""


def _sample(text: bytes, size: int, stretches: int) -> bytes:
    """Evenly spread stretches of a text, of this size together."""
    if len(text) <= size:
        return text
    length = size // stretches
    step = (len(text) - length) // (stretches - 1)
    return b" ".join([text[at : at + length] for at in range(0, len(text), step)])


def _fits(language: str, sample: bytes) -> bool:
    """Whether a text may be in a language, by its script: whether that is Latin or another one."""
    if language in _OTHER_SCRIPTS:
        return not sample.isascii() and _other_script_share(sample) > OTHER_SCRIPT_SHARE_NONE
    # Most pages are nearly all ASCII, and counting other bytes costs a tenth of finding out what they are.
    not_ascii = len(sample.translate(None, _ASCII))
    return not_ascii < OTHER_SCRIPT_SHARE_MIN * len(sample) or _other_script_share(sample) < OTHER_SCRIPT_SHARE_MIN


def _other_script_share(sample: bytes) -> float:
    """The share of a text's bytes that belong to characters of other scripts than the Latin."""
    array = numpy.frombuffer(sample, numpy.uint8)
    other = (array >= _OTHER_LEAD_MIN) & (array != _SYMBOL_LEAD)
    other[:-1] &= (array[:-1] != _VIETNAMESE[0]) | (array[1:] & _VIETNAMESE_MASK != _VIETNAMESE[1])
    wide = other & (array >= _WIDE_LEAD_MIN)
    return float(2 * numpy.count_nonzero(other) + numpy.count_nonzero(wide)) / len(sample)


def _detected(sample: bytes) -> str:
    text = sample.decode("utf-8", "ignore")
    if sample.isascii() or _other_script_share(sample) < OTHER_SCRIPT_SHARE_MIN:
        return _by_words(text) or _by_letters(text, RANK_SURE_MAX, unlisted=True)
    latin, text = " ".join(_ASCII_WORDS.findall(text)), _ASCII_WORDS.sub(" ", text)
    prose, function_words = _most_spoken(latin)
    latin_chars = min(function_words * PROSE_CHARS, len(latin) - latin.count(" "))
    other_chars = _amount(text)
    if prose and latin_chars > MIXED_SHARE * other_chars:
        # Otherwise the Latin letters are names and code.
        return prose if other_chars < MIXED_SHARE * latin_chars else ""
    return _by_words(text) or _by_characters(text) or _by_alphabet(text)


def _amount(text: str) -> float:
    """The amount of text in other scripts, in letters of an alphabet (`CHARACTERS_WORTH`)."""
    codes = numpy.frombuffer(text.encode("utf-32-le"), "<u4")
    wide = numpy.count_nonzero(codes >= _WIDE_CHARACTER_MIN)
    return len(text) - text.count(" ") + (CHARACTERS_WORTH - 1) * wide


def _by_alphabet(text: str) -> str:
    """The language of a text in another script by letter statistics, if its letters do not contradict that."""
    code = _by_letters(text, RANK_MAX)
    if not code or _spells(code, text):
        return code
    others = [one for one in _CYRILLIC if one != code and _spells(one, text)]
    return _by_letters(text, RANK_MAX, among=others) if others else ""


def _spells(language: str, text: str) -> bool:
    """Whether a text has no letters that the language lacks, and one of the language's own letters, if it has such."""
    letters = set(text.lower())
    own = _OWN_LETTERS.get(language)
    return letters.isdisjoint(_FOREIGN_LETTERS.get(language, "")) and (own is None or not letters.isdisjoint(own))


def _by_characters(text: str) -> str:
    """Japanese, Korean or Chinese, by characters alone: with kana, with Hangul, or with Chinese characters only."""
    codes = numpy.frombuffer(text.encode("utf-32-le"), "<u4")
    kana, hangul, chinese = (numpy.count_nonzero((codes >= low) & (codes <= high)) for low, high in _CHARACTERS)
    total = kana + hangul + chinese
    if 2 * total < len(text) - text.count(" "):
        return ""
    if kana > CHARACTERS_SHARE_MIN * total:
        return "jpn"
    return "kor" if hangul > CHARACTERS_SHARE_MIN * total else "zho"


def _by_words(text: str) -> str:
    """The language of a text by its function words; empty when they do not decide it."""
    return _most_spoken(text)[0]


def _most_spoken(text: str) -> tuple[str, int]:
    """The language with the most function words in a text, if they are enough, and how many they are."""
    words = _WORD.findall(text.lower())
    kinds = Counter([word for word in words if word in LANGUAGES_BY_WORD])
    evidence: Counter[str] = Counter()
    kinds_of: Counter[str] = Counter()
    for word, count in kinds.items():
        for language in LANGUAGES_BY_WORD[word]:
            evidence[language] += count
            kinds_of[language] += 1
    best = max(evidence, key=evidence.__getitem__, default="")
    needed = NEEDED_ENGLISH if best == "eng" else NEEDED
    if evidence[best] < max(EVIDENCE_MIN, needed.share * len(words)) or kinds_of[best] < needed.kinds:
        return "", 0
    rivals = [
        language
        for language, count in evidence.items()
        if count >= RIVAL_SHARE * evidence[best] and kinds_of[language] >= RIVAL_SHARE * kinds_of[best]
    ]
    if len(rivals) > 1:
        best = _by_own_words(kinds, rivals) or _by_letters(text, RANK_MAX, among=rivals)
    seconds = [language for language, count in evidence.items() if count >= MIXED_SHARE * evidence[best]]
    is_mixed = any(_has_prose_of(second, kinds, best) for second in seconds if second != best)
    return ("", 0) if is_mixed else (best, evidence[best])


def _by_own_words(kinds: Counter[str], rivals: list[str]) -> str:
    """The rival whose own words, those that the other rivals lack, are clearly the most frequent; empty if none is."""
    own: Counter[str] = Counter()
    for word, count in kinds.items():
        speakers = [language for language in LANGUAGES_BY_WORD[word] if language in rivals]
        if len(speakers) == 1:
            own[speakers[0]] += count
    (best, most), *others = own.most_common(2) or [("", 0)]
    return best if most >= max([OWN_WORDS_MIN, *(count / MIXED_SHARE for _, count in others)]) else ""


def _has_prose_of(second: str, kinds: Counter[str], first: str) -> bool:
    """Whether a text has so many words of a second language, which the first lacks, that it counts as mixed."""
    first_only = second_only = second_kinds = 0
    for word, count in kinds.items():
        speakers = LANGUAGES_BY_WORD[word]
        if first not in speakers and second in speakers:
            second_only += count
            second_kinds += 1
        elif first in speakers and second not in speakers:
            first_only += count
    return second_kinds >= NEEDED.kinds and second_only >= MIXED_SHARE * first_only


def _by_letters(text: str, rank_max: int, *, among: list[str] | None = None, unlisted: bool = False) -> str:
    """The language by letter statistics, among these or all; with `unlisted`, only one without function words here."""
    names = [_TWO_LETTERS[code] for code in among] if among else None
    name, _ = detect_fast(text, cutoff=rank_max, langs=names)
    code = _THREE_LETTERS.get(name, "")
    return "" if unlisted and code in WORDED else code
