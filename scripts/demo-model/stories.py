"""Topic-conditioned stories: request text, story text and what the story is about.

make_story(rng, nouns) returns a dict with "ask" (the user's words), "story", "hero", "kind", "topic", "friend",
"title", "moral" and "short" (a one-sentence version). Nouns is an open list of words mined from the
corpus, so that topics outside words.py occur too and the model learns to copy the word it is given.
"""
import words as W
from param_arcs import DREAM_JOBS, FEARS, LEARN, PARAM_ARCS
from story_arcs import HERO_ARCS, OBJECT_ARCS, PLACE_ARCS
from textgen import article, capitalise, expand, fix_articles, sentence_case

FEMALE = {"princess", "queen", "witch", "fairy", "mermaid", "nurse", "grandmother", "girl", "hen", "cow", "nanny",
          "farmer's wife", "mother", "sister", "aunt", "daughter"}
MALE = {"prince", "king", "wizard", "grandfather", "boy", "rooster", "monk", "cowboy", "postman", "fisherman", "father", "brother", "uncle", "son"}
NUMBERS = ["two", "three", "four", "five", "six", "seven", "ten"]

ASK = ["{Tell|tell} me a {|short |little |nice |bedtime |new |funny |sweet |simple }story about <t>{.|.||!}",
       "{Can|Could|Will|Would} you {|please }tell me a {|short |bedtime |little }story about <t>?",
       "Please {tell me|write|write me} a {|short |little |bedtime }story about <t>.",
       "{Write|Make up|Invent|write} a {|short |children's |little |fairy }{story|tale} about <t>{.|}",
       "{I want|I would like|I'd like} {to hear |}a story about <t>{.|, please.|}",
       "{Story|A story|a story} about <t>{, please.|.|| please}",
       "Do you know a story about <t>?",
       "My {son|daughter|child} {likes|loves} <t>. {Can you tell us a story about <t>?|Tell us a story about <t>.}",
       "{Give|give} me a {|short }story about <t>{.|}",
       "Let's hear a story about <t>{.|!}",
       "Tell us {a tale|a story} about <t>{.|}"]

LEAD = ["", "", "", "", "", "", "", "{Sure|Of course|Yes|Gladly}! Here is a {|short |little }story about <t>.\n\n",
        "{Of course|Sure|With pleasure}. {Here is one|Listen to this one}.\n\n",
        "{Sure!|Here you go.} This is the story of <t>.\n\n"]

OPEN_KIND = [
    "Once upon a time there {was|lived} <adj> <h> {called|named} <N0>. <N0> lived in <home>.",
    "Once upon a time, in <home>, there lived <adj> <h>. {<Hispos>|The <h>'s} name was <N0>.",
    "{There once was|There was once|Long ago there was} <adj> <h> who lived in <home>. Everyone called <him0> <N0>.",
    "In <home> lived <adj> <h> called <N0>.",
    "A long time ago, <adj> <h> named <N0> lived in <home>.",
    "<N0> was <adj> <h>. <N0> lived in <home>.",
    "This is the story of <N0>, <adj> <h> {from|who lived in} <home>."]
OPEN_PLAIN = [
    "Once upon a time there {was|lived} <adj> <h> in <home>.",
    "Once there was <adj> <h> who lived in <home>.",
    "In <home> there lived <adj> <h>.",
    "Long, long ago, <adj> <h> lived in <home>."]
TRAITS = ["", "", "<H> loved <T> and {long walks|sunny days|good stories|quiet evenings|the smell of rain}.",
          "<H> {was always in a good mood|had a warm heart|liked to laugh|asked many questions}.",
          "Every morning <H> {said hello to the sun|looked out of the window and sang|went out to see the world wake up}.",
          "Everybody {liked|knew} <H>."]
END = ["", "", "", "The end.", "And they lived happily ever after.", "And that is the end of the story.",
       "And if you are very quiet, you can still hear <H> laugh.",
       "And so <H> lived happily for many, many years.",
       "That night, <H> went to bed with a smile.",
       "And everyone was happy.",
       "<H> {never forgot|always remembered} that day."]


THING_ADJECTIVES = """old golden tiny broken flying wooden silver lost talking singing red blue green big little magic strange forgotten
shiny sleepy""".split()


def topic_kind(rng, nouns):
    """Draws what the story shall be about: (kind, word)."""
    roll = rng.random()
    if roll < .28:
        return "hero", rng.choice(W.ANIMALS)
    if roll < .42:
        return "hero", rng.choice(W.PEOPLE)
    if roll < .60:
        thing = rng.choice(W.OBJECTS)
        return "object", rng.choice(THING_ADJECTIVES) + " " + thing if rng.random() < .15 else thing
    if roll < .69:
        return "place", rng.choice(W.PLACES)
    if roll < .75:
        return "virtue", rng.choice(sorted(W.VIRTUES))
    if roll < .81:
        return "pair", None
    word = W.invented(rng) if rng.random() < .35 else rng.choice(nouns)
    return ("hero" if rng.random() < .5 else "object"), word


def _hero_slots(rng, noun):
    sex = rng.choice("mf")
    if noun in FEMALE:
        sex = "f"
    elif noun in MALE:
        sex = "m"
    he, him, his, hispos = (("he", "him", "his", "His") if sex == "m" else ("she", "her", "her", "Her"))
    human = noun in W.PEOPLE
    name = rng.choice((W.BOY_NAMES if sex == "m" else W.GIRL_NAMES) if human or rng.random() < .35 else W.ANIMAL_NAMES)
    if name in W.GIRL_NAMES or name in W.BOY_NAMES:
        he, him, his, hispos = (("she", "her", "her", "Her") if name in W.GIRL_NAMES else ("he", "him", "his", "His"))
    friend_kind = rng.choice([f for f in W.FRIEND_ANIMALS if f != noun])
    friend = rng.choice([n for n in W.ANIMAL_NAMES + W.GIRL_NAMES + W.BOY_NAMES if n != name])
    thing, verb = rng.choice(W.OBJECTS), rng.choice(sorted(LEARN))
    extra = {"O": thing, "aO": article(thing), "V": verb, "Ving": LEARN[verb], "X": rng.choice(FEARS),
             "J": rng.choice(DREAM_JOBS), "R": rng.choice(W.FEAST), "him2": "the " + friend_kind}
    return {**extra, "H": name, "N0": name, "h": noun, "he": he, "him": him, "his": his, "He": capitalise(he), "His": hispos,
            "Hispos": hispos, "him0": him, "F": friend, "f": friend_kind, "P": rng.choice(W.WILD_PLACES),
            "T": rng.choice(W.TREATS), "C": rng.choice(W.COLOURS), "N": rng.choice(NUMBERS),
            "home": expand(rng, rng.choice(W.HOMES))}


def _ask(rng, topic):
    text = capitalise(expand(rng, rng.choice(ASK), {"t": topic}))
    roll = rng.random()
    if roll < .06:
        text = text.lower()
    return text


def _join(*parts):
    return " ".join(p for p in parts if p)


def _finish(rng, body, slots, topic, moral=None, lead=True):
    lead = expand(rng, rng.choice(LEAD), {"t": topic}) if lead else ""
    end = expand(rng, rng.choice(END), slots)
    if moral:
        end = _join(expand(rng, "{The moral of the story is:|So remember:|And they all learned:|That is how <H> learned that}",
                           slots), moral + ".")
    sep = "\n" if "\n" in body and rng.random() < .5 else " "
    story = sentence_case(body + (sep + end if end else ""))
    return (lead.strip() + "\n\n" if lead else "") + story


ALL_ARCS = HERO_ARCS + PARAM_ARCS


def hero_story(rng, noun, named=None, adjective=None, arc=None, place=None):
    """Story whose main character is the noun. Returns (slots, body)."""
    s = _hero_slots(rng, noun)
    if named:
        s["H"] = s["N0"] = named
        if named in W.GIRL_NAMES:
            s.update(he="she", him="her", his="her", He="She", His="Her", Hispos="Her", him0="her")
        elif named in W.BOY_NAMES:
            s.update(he="he", him="him", his="his", He="He", His="His", Hispos="His", him0="him")
        if s["F"] == named:
            s["F"] = "Oaky"
    if place:
        s["home"], s["P"] = place, place.split()[-1]
    adj = adjective or rng.choice(W.ADJECTIVES)
    s["adj"] = "a " + adj
    unnamed = not named and rng.random() < .22
    if unnamed:
        s["H"] = "the " + noun
        s["N0"] = "the " + noun
    head = expand(rng, rng.choice(OPEN_PLAIN if unnamed else OPEN_KIND), s)
    arc = arc or rng.choice(ALL_ARCS)
    body = _join(head, expand(rng, rng.choice(TRAITS), s)) + rng.choice(["\n", "\n", " "]) + expand(rng, arc["text"], s)
    return s, body


def object_story(rng, thing):
    s = _hero_slots(rng, rng.choice(["girl", "boy", rng.choice(W.ANIMALS), rng.choice(W.PEOPLE)]))
    s["O"], s["aO"], s["adj"] = thing, article(thing), "a " + rng.choice(W.ADJECTIVES)
    head = "" if rng.random() < .3 else expand(rng, rng.choice(OPEN_KIND), s)
    arc = rng.choice(OBJECT_ARCS)
    if not head:
        head = expand(rng, "{This is a story about <aO>.|Once there was a <h> called <H>.|<H> was a <adj0> <h>.}",
                      dict(s, adj0=rng.choice(W.ADJECTIVES)))
    body = head + rng.choice(["\n", " "]) + expand(rng, arc, s)
    if "called <H>" not in head and s["H"] not in head:
        body = body.replace(s["H"], "a %s called %s" % (s["h"], s["H"]), 1)
    return s, fix_articles(body)


def place_story(rng, place):
    s = _hero_slots(rng, rng.choice(["girl", "boy", rng.choice(W.ANIMALS)]))
    s["L"], s["adj"] = place, "a " + rng.choice(W.ADJECTIVES)
    head = expand(rng, rng.choice(OPEN_KIND), s)
    event = not place.startswith(("the ", "space", "outer")) or place.startswith("the first")
    arc = rng.choice([PLACE_ARCS[0], PLACE_ARCS[2], PLACE_ARCS[5]] if event else PLACE_ARCS)
    return s, head + rng.choice(["\n", " "]) + expand(rng, arc, s)


VIRTUE_ARCS = {"friendship": [7, 0, 2], "honesty": [10], "courage": [1, 22, 5], "kindness": [8, 12, 24], "sharing": [18],
               "patience": [17], "hard work": [31, 4], "helping others": [8, 9, 24], "love": [21, 28], "hope": [1, 25],
               "family": [24, 19], "teamwork": [13, 29], "gratitude": [12, 8], "greed": [18, 11], "pride": [29],
               "forgiveness": [10, 11], "curiosity": [30, 14], "trust": [3, 4], "generosity": [18, 16], "wisdom": [26, 17],
               "jealousy": [15, 28], "a promise": [12, 8], "a lie": [10], "a secret": [1, 20], "dreams": [3, 4]}


def make_story(rng, nouns):
    kind, noun = topic_kind(rng, nouns)
    moral = None
    if kind == "hero":
        topic, s, body = _hero_request(rng, noun)
    elif kind == "object":
        s, body = object_story(rng, noun)
        topic = rng.choice([article(noun)] * 5 + ["the " + noun, "a magic " + noun, "%s and %s" % (article(s["h"]), article(noun)),
                            "%s and the %s" % (s["H"], noun)] + (["my " + noun] if noun in W.OBJECTS else []))
        if topic.startswith("a magic") and "magic" not in body:
            body = body.replace(" " + article(noun), " a magic " + noun, 1)
    elif kind == "place":
        topic = noun
        s, body = place_story(rng, noun)
    elif kind == "virtue":
        topic, moral = noun, W.VIRTUES[noun]
        s, body = hero_story(rng, rng.choice(W.ANIMALS + ["girl", "boy"]), arc=HERO_ARCS[rng.choice(VIRTUE_ARCS[noun])])
    else:
        first, second = rng.sample(W.ANIMALS + W.PEOPLE, 2)
        s = _hero_slots(rng, first)
        s["f"], s["adj"] = second, "a " + rng.choice(W.ADJECTIVES)
        arc = rng.choice([a for a in ALL_ARCS if a["want"] != "met a dragon"])
        colour = rng.choice(W.COLOURS) if rng.random() < .2 else ""
        s["f"] = (colour + " " + second).strip()
        topic = "%s and %s" % (article(first), article(s["f"]))
        if rng.random() < .4:
            named, friend = rng.random() < .6, rng.random() < .5
            topic = first + (" called " if rng.random() < .5 else " named ") + s["H"] if named else first
            topic = "%s and %s %s" % (article(topic), s["his"], s["f"]) + (" " + s["F"] if friend else "")
        body = expand(rng, rng.choice(OPEN_KIND), s) + "\n" + expand(rng, arc["text"], s)
    ask = _ask(rng, topic)
    if rng.random() < .07 and kind != "virtue":
        ask = expand(rng, "{Tell|tell} me a {|short |nice |bedtime |funny }story{.|!||, please.}|{Can|Could} you tell me a story?|I want to hear a story.|"
                          "A story, please.|Write a short story.|Do you know a story?|Tell me any story you like.".join("{}"))
        topic = article(s["h"])
    if moral and rng.random() < .3:
        ask = ask.rstrip(".!? ") + rng.choice([" with a moral.", ". It should have a moral.", " that teaches something."])
    story = _finish(rng, fix_articles(body), s, topic, moral)
    title = _title(rng, s, kind, noun)
    if rng.random() < .05:
        ask = ask.rstrip(".!? ") + rng.choice([" with a title.", ". Give it a title."])
        story = "%s\n\n%s" % (title, _finish(rng, fix_articles(body), s, topic, moral, lead=False))
    short = expand(rng, "{Once there was|There once was} <t1>, and with the help of <F> the <f> everything {ended well|turned out well}.",
                   dict(s, t1=_one(kind, noun, s)))
    return {"ask": ask, "story": story, "hero": s["N0"], "kind": s["h"], "friend": s["F"], "friend_kind": s["f"],
            "topic": topic, "title": title, "short": short}


def _one(kind, noun, s):
    if s["H"].startswith("the "):
        return article(s["h"])
    base = "%s called %s" % (article(s["h"]), s["H"])
    if kind == "object":
        return base + " who had " + article(noun)
    if kind == "place":
        return base + " who loved " + noun
    return base


def _title(rng, s, kind, noun):
    if kind == "object":
        return "%s and the %s" % (capitalise(s["H"]), capitalise(noun))
    if kind == "place":
        return "%s and %s" % (capitalise(s["H"]), capitalise(noun))
    if s["H"].startswith("the "):
        return "The %s and %s" % (capitalise(s["h"]), s["F"])
    return "%s the %s" % (s["H"], capitalise(s["h"]))


def _hero_request(rng, noun):
    roll = rng.random()
    if roll < .34:
        s, body = hero_story(rng, noun)
        return article(noun), s, body
    if roll < .37:
        noun = rng.choice(W.FAMILY)
        s, body = hero_story(rng, noun)
        return expand(rng, "{my|my|our|your} ") + noun, s, body
    if roll < .42:
        s, body = hero_story(rng, noun)
        return "the " + noun if rng.random() < .5 else noun + "s", s, body
    if roll < .56:
        adj = rng.choice(W.ADJECTIVES)
        s, body = hero_story(rng, noun, adjective=adj)
        return article("%s %s" % (adj, noun)), s, body
    if roll < .70:
        name = rng.choice(W.GIRL_NAMES + W.BOY_NAMES + W.ANIMAL_NAMES)
        if rng.random() < .25:
            name = capitalise(W.invented(rng))
        s, body = hero_story(rng, noun, named=name)
        return rng.choice(["%s called %s", "%s named %s"]) % (article(noun), name), s, body
    if roll < .90:
        arc = rng.choice(HERO_ARCS if rng.random() < .4 else PARAM_ARCS)
        named = rng.choice(W.ANIMAL_NAMES) if rng.random() < .3 else None
        s, body = hero_story(rng, noun, arc=arc, named=named)
        want = expand(rng, arc["want"], s)
        head = article(noun) + (" called %s" % named if named else "")
        return "%s who %s" % (head, want), s, body
    place = expand(rng, "a {small |big |dark |quiet |green |magic |}{forest|castle|town|village|garden|valley|farm|cave|city|"
                        "lighthouse|palace|school|zoo|park|jungle|desert}")
    s, body = hero_story(rng, noun, place=place)
    return "%s who lived in %s" % (article(noun), place), s, body
