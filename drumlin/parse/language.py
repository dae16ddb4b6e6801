"""The languages of a page as Common Crawl writes them: ISO 639-3 codes, comma separated.

What a page declares counts, unless its script says otherwise: a template's `lang="en"` around Russian text is a slip.
Where nothing is declared the text is asked. Its function words decide, since letter statistics alone take API pages and
code for Latin or Czech; statistics (resiliparse) decide between languages that share these words, and for other
alphabets. Where neither is sure enough, no language is given.
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
SAMPLES = 3
SAMPLE_BYTES = 1_500
"""So many stretches of a text are looked at, each of so many bytes, spread evenly: pages often begin with a menu."""

EVIDENCE_MIN = 4
"""Function words of a language that a text must have."""


class _Needed(NamedTuple):
    """How many different function words a language needs to be believed, and their share of all words."""

    kinds: int
    share: float


# In prose a third of the words are function words. Names in code are mostly made of English words, which those of
# other languages are among by chance, so English needs less.
NEEDED_ENGLISH = _Needed(3, 0.05)
NEEDED = _Needed(5, 0.09)
RIVAL_SHARE = 0.8
"""A language with this share of the winner's evidence might be it too; letter statistics then decide."""

RANK_MAX = 1_200
"""resiliparse calls a higher rank usually false."""
RANK_SURE_MAX = 300
"""Of 4,442 English pages below this rank none was taken for another language, of 2,964 in the next hundred 13."""

OTHER_SCRIPT_SHARE_MIN = 0.2
"""A text is in another script than the Latin when this share of its bytes belongs to characters of one."""
OTHER_SCRIPT_SHARE_NONE = 0.01
"""With less, a text is not in another script, whatever it declares."""
CHARACTERS_SHARE_MIN = 0.1
"""The least share of kana in a Japanese text, and of Hangul in a Korean one."""

# Characters from Greek on, in UTF-8; but not general punctuation and symbols.
_OTHER_LEAD_MIN = 0xCD
_SYMBOL_LEAD = 0xE2
_WIDE_LEAD_MIN = 0xE0
# The Latin letters of Vietnamese begin with E1 and then B8 to BB.
_VIETNAMESE = (0xE1, 0xB8)
_VIETNAMESE_MASK = 0xFC
# Kana, Hangul and Chinese characters.
_CHARACTERS = ((0x3041, 0x30FF), (0xAC00, 0xD7A3), (0x4E00, 0x9FFF))
_WORD = re.compile(r"[^\W\d_]+")
_ASCII_WORDS = re.compile(r"[\x00-\x7f]+")
_OTHER_SCRIPTS_CODES = """
ara asm bak bel ben bod bul che chv div ell fas guj heb hin hye jpn kan kat kaz khm kir kor lao mal mar mkd mon mya nep
ori oss pan pus rus san sin snd tam tat tel tgk tha tir uig ukr urd yid zho
"""
_OTHER_SCRIPTS = frozenset(_OTHER_SCRIPTS_CODES.split())
"""Languages that are not written in Latin letters, or seldom."""

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
    """The languages of a page that declares these and has this text; empty when they are not known."""
    if not declared:
        return detected_language(text)
    sample = _sample(text)
    if len(sample) < DETECT_BYTES_MIN or _fits(declared.partition(",")[0], sample):
        return declared
    return _detected(sample) or declared


def detected_language(text: bytes) -> str:
    """The code of the language a text seems to be in; empty when that is not clear."""
    return _detected(_sample(text)) if len(text) >= DETECT_BYTES_MIN else ""


def _sample(text: bytes) -> bytes:
    """Stretches from all over a text."""
    if len(text) <= SAMPLES * SAMPLE_BYTES:
        return text
    step = (len(text) - SAMPLE_BYTES) // (SAMPLES - 1)
    return b" ".join([text[at : at + SAMPLE_BYTES] for at in range(0, len(text), step)])


def _fits(language: str, sample: bytes) -> bool:
    """Whether a text is in the script of a language, as far as that tells."""
    if sample.isascii():
        return language not in _OTHER_SCRIPTS
    share = _other_script_share(sample)
    return share > OTHER_SCRIPT_SHARE_NONE if language in _OTHER_SCRIPTS else share < OTHER_SCRIPT_SHARE_MIN


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
    # What is in Latin letters here are names and code.
    text = _ASCII_WORDS.sub(" ", text)
    return _by_words(text) or _by_characters(text) or _by_letters(text, RANK_MAX)


def _by_characters(text: str) -> str:
    """Japanese, Korean or Chinese, which characters alone tell: kana, Hangul, or neither beside Chinese ones."""
    codes = numpy.frombuffer(text.encode("utf-32-le"), "<u4")
    kana, hangul, chinese = (numpy.count_nonzero((codes >= low) & (codes <= high)) for low, high in _CHARACTERS)
    total = kana + hangul + chinese
    if 2 * total < len(text) - text.count(" "):
        return ""
    if kana > CHARACTERS_SHARE_MIN * total:
        return "jpn"
    return "kor" if hangul > CHARACTERS_SHARE_MIN * total else "zho"


def _by_words(text: str) -> str:
    """The language whose function words a text is full of, if there is one."""
    words = _WORD.findall(text.lower())
    known = [word for word in words if word in LANGUAGES_BY_WORD]
    kinds = Counter(known)
    evidence: Counter[str] = Counter()
    kinds_of: Counter[str] = Counter()
    for word, count in kinds.items():
        for language in LANGUAGES_BY_WORD[word]:
            evidence[language] += count
            kinds_of[language] += 1
    best = max(evidence, key=evidence.__getitem__, default="")
    needed = NEEDED_ENGLISH if best == "eng" else NEEDED
    if evidence[best] < max(EVIDENCE_MIN, needed.share * len(words)) or kinds_of[best] < needed.kinds:
        return ""
    rivals = [
        language
        for language, count in evidence.items()
        if count >= RIVAL_SHARE * evidence[best] and kinds_of[language] >= RIVAL_SHARE * kinds_of[best]
    ]
    return best if len(rivals) == 1 else _by_letters(text, RANK_MAX, among=rivals)


def _by_letters(text: str, rank_max: int, *, among: list[str] | None = None, unlisted: bool = False) -> str:
    """What letter statistics say, among these languages or all; `unlisted` ones have no list of function words."""
    names = [_TWO_LETTERS[code] for code in among] if among else None
    name, _ = detect_fast(text, cutoff=rank_max, langs=names)
    code = _THREE_LETTERS.get(name, "")
    return "" if unlisted and code in WORDED else code
