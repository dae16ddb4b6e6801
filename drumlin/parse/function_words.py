"""The most frequent small words of each language. For texts that are half code they show the language far better than
letters do.

Each language has about its twenty most frequent words. ASCII words of one letter are left out, since code is full of
them. Languages with alphabets other than Latin and Cyrillic are recognised by their characters.
"""

from __future__ import annotations

_LISTS = """
eng the of and to is in for that with be this are it as or by an if not on from which can you will have when has may
deu der die und den das von ist mit für nicht ein eine auf werden wird dem im zu sich auch oder sie als des es wenn kann
fra le la les des et est une pour dans que qui pas sur par du en ce il au avec sont vous ou plus cette peut être
spa el la los las que del una por para con es se en no su al como más este está son puede si lo esta
por que os as do da em um uma para com não por dos das se no na ao são mais como pode você ou seu
ita il di che la per un una è non del sono con in le si dei della gli nel alla questo anche come può più
nld de het een van en is dat niet op te voor met die zijn aan wordt door of om ook er deze bij kan naar
swe och att det som är en på för med av den inte till om ett har kan de eller från du när ska så
dan og at det er en på for med af den ikke til der et har kan de eller fra du når skal som efter ved hvis bliver sig
nor og at det er en på for med av den ikke til som et har kan de eller fra du når skal etter ved hvis blir seg
fin ja on ei että se joka kun tai myös ovat mutta voi jos kuin niin tämä sen ole voit jotka hän
pol się nie na jest do że to jak od przez dla oraz lub po są może tego który można ten ale jeśli
ces se na je že to jako pro nebo které od po jsou by může který není být pokud ale aby však tak při také jen ve do za si
slk sa na je že to ako pre alebo ktoré od po sú by môže ktorý nie byť ak ale aby však tak pri tiež len vo do za si
hun az és hogy nem egy is ez van meg csak ha vagy mint de el lehet kell azt ezt ami
ron și de la în nu cu pe care este un pentru din sau mai al ce sunt fi poate să dacă prin
tur ve bir bu için ile olarak da de olan daha gibi veya çok ne kadar her ise değil sonra
vie và của là có các cho không được một trong với những để này khi đã từ người bạn như
ind yang dan di untuk dengan dari ini pada tidak adalah dalam akan atau itu dapat ke anda jika oleh sebuah
cat el la que els les per una amb del és en no un dels al com més aquest es pot són per si
hrv je se na za su da koji od ili kao što ne bi nije može sa iz ako te ovaj biti ima
slv je se na za so da ki od ali kot pa ne bi ni lahko iz če tudi ta biti ima
est ja on ei et see mis kui oli ka või aga siis mida selle kes seda olla võib
lav un ir ar no par kas tas uz ka lai vai bet var nav to šis pēc jūs
lit ir yra kad tai su iš kaip bet ar ne jei gali buvo nuo į apie jis arba
eus eta da ez bat du dira edo dute baina hau izan den egin zen behar ere
glg que os as do da en un unha para con non por dos das se no na ao son máis como pode ou
afr die van en in is het nie dat word vir met op om te wat hierdie deur kan ook
isl og að er um sem ekki það til við var fyrir með af eða en hann
sqi dhe në të një për që me është nga nuk si ka kjo ose duke
rus и в не на что с по как для это из или при вы от то если может также
ukr і в не на що з до як для це та або при ви від якщо може також є
bel і ў не на што з па як для гэта або пры вы ад калі можа таксама
bul и в не на че с по как за това от или при са се ако може също
srp и у не на да се је за од или као су који што ако може није
mkd и во не на дека со по како за ова од или при се ако може што
"""

LANGUAGES_BY_WORD: dict[str, tuple[str, ...]] = {}
"""The languages in which a word is a function word, as ISO 639-3 codes."""

WORDED: set[str] = set()
"""The languages that have a list."""

for _line in _LISTS.strip().splitlines():
    _language, *_words = _line.split()
    WORDED.add(_language)
    for _word in dict.fromkeys(_words):
        if len(_word) > 1 or not _word.isascii():
            LANGUAGES_BY_WORD[_word] = (*LANGUAGES_BY_WORD.get(_word, ()), _language)
