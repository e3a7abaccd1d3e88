"""Vocabulary of the demo decoder, in groups by the function of the words in its sentences."""

from __future__ import annotations

SPECIAL_TOKENS = ("<pad>", "<unk>", "<end>")

CREATURES = tuple(
    "animal dog cat horse bear wolf fox rabbit mouse sheep goat cow pig duck hen "
    "lion tiger monkey camel donkey turtle frog deer child puppy kitten bird snake".split()
)
PLACES = tuple(
    "street river road bridge field lake canal valley desert square path tunnel stream highway "
    "forest meadow swamp hill track yard".split()
)
THINGS = tuple(
    "box soup bread apple cake stone log bag chair melon pie fish bone stick ball bucket "
    "carrot cheese table barrel".split()
)

# Adjectives after "it was too", by the kind of noun that "it" means. No word is in two lists.
ADJECTIVES = {
    "creature": tuple(
        "tired weak lazy hungry scared sleepy sick shy young nervous timid bored thirsty "
        "clumsy".split()
    ),
    "place": tuple(
        "wide deep busy muddy icy crowded long steep flooded dark noisy narrow slippery "
        "foggy".split()
    ),
    "thing": tuple(
        "heavy hot salty sour bitter sharp hard spicy rotten sticky stale greasy bulky raw".split()
    ),
}

# Verbs whose subject is a creature, by the kind of the object.
OUTINGS = {
    "place": ("cross", "enter", "leave", "visit", "reach"),
    "thing": ("lift", "eat", "carry", "touch", "take"),
}

# Ends of a sentence, by the kind of its last subject.
FATES = {
    "creature": ("went to sleep", "stayed at home", "sat down", "ran away"),
    "place": ("stayed empty", "was closed", "lay quiet"),
    "thing": ("was left alone", "stayed where it was", "was thrown away"),
}

NAMES = tuple(
    "mary john anna peter lucy tom sara paul emma david julia mark laura james nina simon "
    "alice henry clara robert helen frank olga martin".split()
)
VENUES = tuple(
    "shop market school park station library museum garden office theatre harbour kitchen "
    "church hotel beach farm".split()
)
GIFTS = tuple(
    "drink book flower letter ring ticket coin hat pen map key gift photo lamp cup basket".split()
)

_FUNCTION_WORDS = tuple(
    "the a did not because since it was too so when after while and went to were at "
    "gave handed offered sent . , in on morning evening night monday tuesday friday sunday".split()
)

# Words that occur only in random sequences.
_OTHER_WORDS = tuple(
    "red blue green yellow black white brown grey north south east west spring summer autumn "
    "winter water fire earth wind rain snow sun moon star cloud gold silver iron copper glass "
    "paper wood wool cotton leather music song dance story poem picture number letter clock "
    "window door wall roof floor corner circle line point shape".split()
)


def _distinct(*groups: tuple[str, ...]) -> tuple[str, ...]:
    words = [word for group in groups for text in group for word in text.split()]
    return tuple(dict.fromkeys(words))


WORDS = _distinct(
    _FUNCTION_WORDS,
    CREATURES,
    PLACES,
    THINGS,
    *ADJECTIVES.values(),
    *OUTINGS.values(),
    *FATES.values(),
    NAMES,
    VENUES,
    GIFTS,
    _OTHER_WORDS,
)
