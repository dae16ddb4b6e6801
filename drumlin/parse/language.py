"""The languages of a page as Common Crawl writes them: ISO 639-3 codes, comma separated."""

from __future__ import annotations

import functools

from resiliparse.parse.lang import detect_fast

LANGUAGES_MAX = 3
DETECT_BYTES_MIN = 60
DETECT_BYTES_MAX = 2000

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


def detected_language(text: bytes) -> str:
    """The code of the language a text seems to be in; empty when there is too little of it to tell."""
    if len(text) < DETECT_BYTES_MIN:
        return ""
    language, _ = detect_fast(text[:DETECT_BYTES_MAX].decode("utf-8", "ignore"))
    return _THREE_LETTERS.get(language, "")
