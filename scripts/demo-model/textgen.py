"""Tiny text grammar used by all template generators.

Alternatives are written {a|b|c} (nesting allowed) and slots <Name>; expand() picks one alternative of
each, fills the slots and repairs "a"/"an" and capital letters at the start of sentences.
"""
import re

_ALT = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<([A-Za-z_0-9]+)>")
_ARTICLE = re.compile(r"\b([Aa])n? (?=([A-Za-z]+))")
_CONSONANT_SOUND = ("uni", "use", "usu", "eu", "one", "once", "ukulele")
_VOWEL_SOUND = ("hour", "honest", "honour", "heir")


def article(noun):
    """'fox' -> 'a fox', 'owl' -> 'an owl'."""
    return ("an " if _takes_an(noun) else "a ") + noun


def _takes_an(word):
    w = word.lower()
    if w.startswith(_VOWEL_SOUND):
        return True
    return w[:1] in "aeiou" and not w.startswith(_CONSONANT_SOUND)


def fix_articles(text):
    return _ARTICLE.sub(lambda m: m.group(1) + ("n " if _takes_an(m.group(2)) else " "), text)


def capitalise(text):
    """Upper-case the first letter of the text."""
    return text[:1].upper() + text[1:]


def expand(rng, template, slots=None):
    """One random reading of the template."""
    text = template
    while "{" in text:
        text = _ALT.sub(lambda m: rng.choice(m.group(1).split("|")), text)
    if slots:
        while "<" in text:
            new = _SLOT.sub(lambda m: str(slots[m.group(1)]), text)
            if new == text:
                break
            text = new
    text = fix_articles(text)
    return re.sub(r"  +", " ", text).strip()


def sentence_case(text):
    """Capital letter at the start of each paragraph and after . ! ? followed by a space."""
    def up(m):
        return m.group(1) + m.group(2).upper()
    return re.sub(r"(^|[.!?] |\n\n?)([a-z])", up, text)
