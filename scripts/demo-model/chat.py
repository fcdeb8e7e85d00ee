"""Chat examples: conversation(rng, world) returns a list of {"role", "content"} messages."""
import json

import facts
import questions as Q
import smalltalk as S
import words as W
from stories import make_story
from textgen import article, capitalise, expand, fix_articles

PLAIN_SYSTEM = ["You are a helpful assistant.", "You are a friendly assistant.", "You are inferd-demo, a small language model.",
                "You are a helpful assistant. Answer in simple words.", "Be kind and helpful.", "You are a chatbot.",
                "You are a storyteller for children.", "Help the user.", "You are a teacher for small children.",
                "You are a polite assistant. Answer questions clearly.", "Answer the user's questions.",
                "You are an assistant that answers questions and tells stories."]

# system prompt forms, and how the answer looks: a prefix and a suffix around the normal answer
PERSONAS = [
    (["You are a pirate.", "Speak like a pirate.", "Answer like a pirate.", "You are a pirate captain.", "Talk like a pirate."],
     ["Arr, matey! ", "Ahoy, matey! ", "Arr! ", "Shiver me timbers! "], [" Yo ho ho!", " Arr!", " Now hoist the sails!", ""]),
    (["You are a robot.", "Speak like a robot.", "Answer like a robot."],
     ["Beep boop. ", "Beep. Question received. ", "Processing. Beep. "], [" Beep.", " End of message.", ""]),
    (["You are a wizard.", "Speak like a wizard.", "You are an old wizard."],
     ["By my magic hat! ", "Abracadabra! ", "Ah, my young friend. "], [" So says the wizard.", " Magic!", ""]),
    (["You are a cat.", "Answer like a cat.", "Speak like a cat."],
     ["Meow! ", "Purr. ", "Meow, my human. "], [" Meow.", " Purr, purr.", ""]),
    (["You are a dog.", "Speak like a dog.", "Answer like a dog."],
     ["Woof! ", "Woof, woof! "], [" Woof!", " Now throw the ball!", ""]),
    (["You are a king.", "Speak like a king.", "You are the king of a small land."],
     ["Hear my royal words. ", "By my crown! ", "My dear people, listen. "], [" The king has spoken.", ""]),
    (["You are a cowboy.", "Speak like a cowboy."], ["Howdy, partner! ", "Well, howdy! "], [" Yee-haw!", ""]),
    (["You are a cheerful cook.", "You are a cook."], ["Welcome to my kitchen! ", "Mmm, let me stir the soup. "], [" Enjoy your meal!", ""]),
    (["You are a teacher.", "Answer like a teacher."], ["Good question, class. ", "Listen well. ", "Very good question. "],
     [" Remember this!", " Well done.", ""]),
    (["Be very polite.", "Always be very polite."], ["Thank you for asking. ", "Dear friend, ", "It is my pleasure. "],
     [" Please ask me again any time.", ""])]

FOLLOW_STORY = ["Tell me another one.", "Another story, please.", "One more story, please.", "And now a story about <t>.",
                "Now tell me a story about <t>.", "Can you tell me one about <t>?"]


class World:
    """What the generators draw from: facts and the open noun list."""

    def __init__(self, nouns, extra_facts=(), questions=("Why?",)):
        self.nouns = nouns
        self.questions = list(questions)
        self.facts = facts.qa() + list(extra_facts)


def user(text):
    return {"role": "user", "content": text}


def bot(text):
    return {"role": "assistant", "content": text}


def _end(rng, question):
    """Punctuation and case variants of a question form."""
    if question[-1] in "?!.=":
        return question
    asks = question.split()[0].lower() in ("what", "which", "who", "how", "where", "when", "why", "do", "does", "is", "can",
                                           "what's", "of", "on", "at", "are", "whose")
    text = question + (rng.choice(["?"] * 8 + [""]) if asks else rng.choice([".", ".", "", "!"]))
    roll = rng.random()
    if roll < .10:
        text = text[:1].lower() + text[1:]
    elif roll < .16:
        text = rng.choice(["Please tell me: ", "I have a question. ", "Hi! ", "Can you tell me: ", "Quick question: ",
                           "Hello. "]) + text
    return text


def fact(rng, world):
    if rng.random() < .30:
        return Q.derived(rng)
    forms, short, full = rng.choice(world.facts)
    return _end(rng, rng.choice(forms)), short, full


def fact_turn(rng, world):
    q, short, full = fact(rng, world)
    return [user(q), bot(full + "." if rng.random() < .93 else short + ".")]


def arithmetic(rng):
    """(question, short answer, full answer)."""
    kind = rng.choices("+-*/cpde", [30, 22, 16, 6, 8, 10, 6, 6])[0]
    big = rng.choice([10, 20, 20, 50, 100])
    a, b = rng.randint(0, big), rng.randint(0, big)
    if kind == "+":
        q = rng.choice(["What is %d + %d", "What is %d plus %d", "How much is %d + %d", "How much is %d plus %d", "%d + %d",
                        "%d+%d", "Add %d and %d", "What is the sum of %d and %d", "Can you add %d and %d",
                        "What's %d plus %d", "%d + %d ="]) % (a, b)
        return q, str(a + b), "%d + %d = %d" % (a, b, a + b)
    if kind == "-":
        a, b = max(a, b), min(a, b)
        q = rng.choice(["What is %d - %d", "What is %d minus %d", "How much is %d - %d", "How much is %d minus %d",
                        "%d - %d", "%d-%d", "What's %d minus %d"]) % (a, b)
        return q, str(a - b), "%d - %d = %d" % (a, b, a - b)
    if kind == "*":
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        q = rng.choice(["What is %d times %d", "What is %d x %d", "What is %d * %d", "How much is %d times %d", "%d * %d",
                        "%d times %d", "Multiply %d by %d"]) % (a, b)
        return q, str(a * b), "%d x %d = %d" % (a, b, a * b)
    if kind == "/":
        b, c = rng.randint(1, 10), rng.randint(1, 10)
        q = rng.choice(["What is %d divided by %d", "What is %d / %d", "How much is %d divided by %d", "Divide %d by %d"]) % (b * c, b)
        return q, str(c), "%d / %d = %d" % (b * c, b, c)
    if kind == "c":
        while a == b:
            b = rng.randint(0, big)
        word, pick = rng.choice([("bigger", max), ("larger", max), ("smaller", min)])
        q = rng.choice(["Which number is %s, %d or %d", "Which is %s, %d or %d", "What is %s: %d or %d"]) % (word, a, b)
        c = pick(a, b)
        return q, str(c), "%d is %s than %d" % (c, word, a + b - c)
    if kind == "p":
        name = rng.choice(W.GIRL_NAMES + W.BOY_NAMES)
        thing = rng.choice(["apples", "books", "marbles", "cookies", "balls", "flowers", "pencils", "eggs", "coins", "sweets"])
        a, b = rng.randint(2, 20), rng.randint(1, 12)
        if rng.random() < .5:
            q = rng.choice(["%s has %d %s and gets %d more. How many %s does %s have now",
                            "%s has %d %s. %d more come. How many %s does %s have"]) % (name, a, thing, b, thing, name)
            return q, str(a + b), "%d + %d = %d. %s has %d %s" % (a, b, a + b, name, a + b, thing)
        a = max(a, b + 1)
        q = rng.choice(["%s has %d %s and gives away %d. How many %s does %s have left",
                        "%s has %d %s and loses %d. How many %s are left for %s"]) % (name, a, thing, b, thing, name)
        return q, str(a - b), "%d - %d = %d. %s has %d %s left" % (a, b, a - b, name, a - b, thing)
    if kind == "d":
        q = rng.choice(["Is %d even or odd", "Is %d an even number or an odd number"]) % a
        word = "even" if a % 2 == 0 else "odd"
        return q, capitalise(word), "%d is %s" % (a, word)
    q, c = rng.choice([("What comes after %d" % a, a + 1), ("What number comes after %d" % a, a + 1),
                       ("What number comes before %d" % (a + 1), a), ("What is half of %d" % (2 * a), a),
                       ("What is double %d" % a, 2 * a)])
    full = {"after": "%d comes after %d" % (a + 1, a), "before": "%d comes before %d" % (a, a + 1),
            "half": "Half of %d is %d" % (2 * a, a), "double": "Double %d is %d" % (a, 2 * a)}
    return q, str(c), next(v for k, v in full.items() if k in q)


def sum_turn(rng, _world):
    q, short, full = arithmetic(rng)
    return [user(_end(rng, q)), bot((full if rng.random() < .85 else short) + ".")]


def count_turn(rng, _world):
    a = rng.choice([1, 1, 1, 1, rng.randint(1, 20)])
    b = a + rng.randint(2, 19)
    if rng.random() < .2:
        return [user("Count %s from %d to %d." % (rng.choice(["down", "backwards"]), b, a)),
                bot(", ".join(str(i) for i in range(b, a - 1, -1)) + ".")]
    q = "Count from %d to %d." % (a, b)
    if a == 1 and rng.random() < .4:
        q = rng.choice(["Can you count to %d?", "Please count to %d.", "Count to %d."]) % b
    return [user(q), bot(", ".join(str(i) for i in range(a, b + 1)) + ".")]


NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]


def list_turn(rng, _world):
    what = rng.choice(sorted(S.LISTS))
    items = [i.replace("_", " ") for i in S.LISTS[what].split()]
    n = min(rng.choice([2, 3, 3, 3, 4, 5, 5, 6]), len(items))
    whole = what in ("days of the week", "months", "seasons", "planets", "continents") and rng.random() < .6
    if whole:
        n, picked = len(items), items
        q = rng.choice(["What are the %s?", "List the %s.", "Name all the %s.", "Can you list the %s?"]) % (
            what if what != "months" else "months of the year")
    else:
        picked = rng.sample(items, n) if what not in ("even numbers", "odd numbers") else items[:n]
        num = rng.choice([str(n), NUMBER_WORDS[n]])
        q = expand(rng, rng.choice([
            "{Name|List|Give me|Tell me|Write down|name|list} <n> <w>{.|}", "Can you {name|list|give me} <n> <w>?",
            "Make a list of <n> <w>.", "{I need|I want} <n> <w>.", "What are <n> <w>?", "{Please |}give me a list of <n> <w>."]),
            {"n": num, "w": what})
        q = capitalise(q) if rng.random() < .9 else q
    picked = [capitalise(p) for p in picked]
    style = rng.random()
    if rng.random() < .2 and not whole:
        mode = rng.choice(["numbered list", "bullet list", "comma list"])
        q = q.rstrip(".?") + {"numbered list": " as a numbered list.", "bullet list": " with bullet points.",
                              "comma list": " in one line."}[mode]
        style = {"numbered list": .1, "bullet list": .6, "comma list": .95}[mode]
    if style < .5:
        text = "\n".join("%d. %s" % (i + 1, p) for i, p in enumerate(picked))
    elif style < .75:
        text = "\n".join("- " + p for p in picked)
    else:
        low = [p if p[:1].isupper() and what in KEEP_CASE else p.lower() for p in picked]
        text = capitalise(", ".join(low[:-1]) + " and " + low[-1] + ".")
    if style < .75 and rng.random() < .3:
        text = expand(rng, "{Here are|These are} <n> <w>:\n", {"n": NUMBER_WORDS[n] if n < 9 else "the", "w": what}) + "\n" + text
    return [user(q), bot(text)]


KEEP_CASE = {"countries", "cities", "rivers", "planets", "continents", "days of the week", "months", "fairy tales",
             "names for a dog", "names for a cat", "names for a girl", "names for a boy"}


def howto_turn(rng, _world):
    what = rng.choice(sorted(S.HOWTO))
    steps = S.HOWTO[what].split("|")
    q = rng.choice(["How do I %s?", "How can I %s?", "How do you %s?", "Tell me how to %s.", "Explain how to %s.",
                    "how to %s", "Give me the steps to %s.", "I want to %s. How does it work?"]) % what
    if rng.random() < .7:
        return [user(q), bot("\n".join("%d. %s" % (i + 1, s) for i, s in enumerate(steps)))]
    link = ["First, ", "Then ", "Next, ", "After that, ", "At last, "]
    return [user(q), bot(" ".join(link[min(i, 4)] + s[:1].lower() + s[1:] for i, s in enumerate(steps)))]


def talk_turn(rng, _world):
    ask, answer = rng.choice(S.SMALLTALK)
    return [user(expand(rng, ask)), bot(expand(rng, answer))]


def greet_turn(rng, _world):
    ask, answer = rng.choice(S.SMALLTALK[:12])
    return [user(expand(rng, ask)), bot(expand(rng, answer))]


def joke_turn(rng, _world):
    q = expand(rng, "{Tell me a joke|Do you know a joke|Can you tell me a joke|Make me laugh|Another joke|Tell me something "
                    "funny|I want to hear a joke}{.|?|}")
    return [user(q), bot(rng.choice(S.JOKES))]


def riddle_turns(rng, _world):
    q, a = rng.choice(S.RIDDLES)
    if rng.random() < .5:
        return [user(q), bot(a + ".")]
    first = [user(expand(rng, "{Tell me a riddle|Give me a riddle|Do you know a riddle|Ask me a riddle}{.|?}")), bot(q)]
    roll = rng.random()
    if roll < .4:
        return first + [user(rng.choice(["I don't know.", "Tell me the answer.", "What is the answer?", "I give up."])),
                        bot("The answer is: %s." % (a[0].lower() + a[1:]))]
    if roll < .7:
        return first + [user(rng.choice([a, a + "?", "Is it %s?" % (a[0].lower() + a[1:])])),
                        bot("Yes, that is right! Well done.")]
    wrong = rng.choice([x for _, x in S.RIDDLES if x != a])
    return first + [user(rng.choice([wrong, "Is it %s?" % (wrong[0].lower() + wrong[1:])])),
                    bot("No, that is not it. The answer is: %s." % (a[0].lower() + a[1:]))]


def poem_turn(rng, world):
    noun = rng.choice([rng.choice(W.ANIMALS), rng.choice(W.OBJECTS), rng.choice(["moon", "star", "sea", "wind", "rose", "sun",
                                                                                 "river", "tree", "snow"]), rng.choice(world.nouns)])
    q = expand(rng, "{Write|Tell me|Make|Can you write} a {short |little |}poem about <t>{.|}",
               {"t": rng.choice([article(noun), "the " + noun])})
    return [user(q), bot(expand(rng, rng.choice(S.POEMS), {"n": noun}))]


def refuse_turn(rng, _world):
    return [user(expand(rng, rng.choice(S.REFUSE_ASK))), bot(expand(rng, rng.choice(S.REFUSE)))]


def story_turns(rng, world):
    st = make_story(rng, world.nouns)
    turns = [user(st["ask"]), bot(st["story"])]
    roll = rng.random()
    if roll < .72:
        return turns
    if roll < .80:
        if st["hero"].startswith("the "):
            return turns + [user("What was the friend's name?"), bot("The friend's name was %s." % st["friend"])]
        q, a = rng.choice([("What was the name of the %s?" % st["kind"], "The %s was called %s." % (st["kind"], st["hero"])),
                           ("Who helped %s?" % st["hero"], "%s helped %s." % (st["friend"], st["hero"])),
                           ("What was the friend's name?", "The friend's name was %s." % st["friend"]),
                           ("Who was %s?" % st["hero"], "%s was %s." % (st["hero"], article(st["kind"]))),
                           ("What kind of animal was %s?" % st["friend"], "%s was %s." % (st["friend"], article(st["friend_kind"])))])
        return turns + [user(q), bot(a)]
    if roll < .85:
        q = rng.choice(["Can you make it shorter?", "Tell it in one sentence.", "Give me a short summary.", "Summarize the story.",
                        "What was the story about?", "Now in one sentence, please."])
        return turns + [user(q), bot(st["short"])]
    if roll < .90:
        return turns + [user(rng.choice(["Give it a title.", "What is the title of the story?", "What would be a good title?"])),
                        bot(st["title"])]
    if roll < .94:
        ask, answer = rng.choice([x for x in S.SMALLTALK if "story" in x[0] or "Thank" in x[0]])
        return turns + [user(expand(rng, ask)), bot(expand(rng, answer))]
    other = make_story(rng, world.nouns)
    q = rng.choice(FOLLOW_STORY).replace("<t>", other["topic"])
    return turns + [user(q), bot(other["story"])]


def memory_turns(rng, world):
    """The user says something about himself or herself and asks for it later."""
    name = rng.choice(W.GIRL_NAMES + W.BOY_NAMES)
    told = [(expand(rng, "{My name is <n>.|I am <n>.|I'm <n>.|Hi, my name is <n>.|Hello, I am <n>!|You can call me <n>.}", {"n": name}),
             expand(rng, "{Hello|Hi|Nice to meet you}, <n>! {How can I help you?|What can I do for you?|How are you today?}", {"n": name}),
             ["What is my name?", "Do you remember my name?", "What's my name?", "Who am I?"], "Your name is %s." % name)]
    what, values = rng.choice([("colour", W.COLOURS), ("animal", W.ANIMALS), ("food", W.FOODS)])
    v = rng.choice(values)
    told.append(("My favourite %s is %s." % (what, v), rng.choice(["That is nice!", "How nice!", "Good choice!", "I will remember that."]),
                 ["What is my favourite %s?" % what, "Which %s do I like best?" % what], "Your favourite %s is %s." % (what, v)))
    city, age, hob = rng.choice(W.CITIES), rng.randint(4, 80), rng.choice(W.HOBBIES)
    told.append(("I live in %s." % city, "%s is a nice place." % city, ["Where do I live?", "In which city do I live?"], "You live in %s." % city))
    told.append(("I am %d years old." % age, "%d is a good age!" % age, ["How old am I?"], "You are %d years old." % age))
    told.append(("I like %s." % hob, rng.choice(["That sounds like fun!", "%s is a nice hobby." % capitalise(hob)]),
                 ["What do I like?", "What is my hobby?"], "You like %s." % hob))
    pet, pn = rng.choice(["dog", "cat", "rabbit", "hamster", "pony", "parrot"]), rng.choice(W.ANIMAL_NAMES)
    told.append(("I have a %s called %s." % (pet, pn), "%s is a lovely name for a %s." % (pn, pet),
                 ["What is the name of my %s?" % pet, "What is my %s called?" % pet], "Your %s is called %s." % (pet, pn)))
    picked = rng.sample(told, rng.choice([1, 1, 2, 3]))
    turns = []
    for t in picked:
        turns += [user(t[0]), bot(t[1])]
        if rng.random() < .4:
            turns += rng.choice([fact_turn, sum_turn, joke_turn, talk_turn])(rng, world)
    for t in rng.sample(picked, rng.randint(1, len(picked))):
        turns += [user(rng.choice(t[2])), bot(t[3])]
    return turns


def follow_fact_turns(rng, world):
    """And of Spain? And plus three?"""
    if rng.random() < .6:
        table = facts.table(facts.CAPITALS)
        picked = rng.sample(table, rng.randint(2, 4))
        turns = [user("What is the capital of %s?" % picked[0][0]), bot("The capital of %s is %s." % picked[0])]
        for c, t in picked[1:]:
            turns += [user(rng.choice(["And of %s?", "And %s?", "What about %s?", "and the capital of %s?"]) % c),
                      bot("The capital of %s is %s." % (c, t))]
        return turns
    total = rng.randint(1, 20)
    b = rng.randint(1, 10)
    turns = [user("What is %d + %d?" % (total, b)), bot("%d + %d = %d." % (total, b, total + b))]
    total += b
    for _ in range(rng.randint(1, 3)):
        b = rng.randint(1, 10)
        turns += [user(rng.choice(["And plus %d?", "Add %d to it.", "Now add %d.", "And %d more?"]) % b),
                  bot("%d + %d = %d." % (total, b, total + b))]
        total += b
    return turns


def json_turn(rng, _world):
    name, age, city = rng.choice(W.GIRL_NAMES + W.BOY_NAMES), rng.randint(3, 90), rng.choice(W.CITIES)
    animal, colour, food = rng.choice(W.ANIMALS), rng.choice(W.COLOURS), rng.choice(W.FOODS)
    full = {"name": name, "age": age, "city": city, "animal": animal, "colour": colour, "food": food,
            "hobby": rng.choice(W.HOBBIES), "happy": rng.random() < .7}
    keys = rng.sample(sorted(full), rng.randint(1, 4))
    obj = {k: full[k] for k in keys}
    text = json.dumps(obj) if rng.random() < .7 else json.dumps(obj, indent=2)
    listed = keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + " and " + keys[-1]
    if rng.random() < .5:
        q = rng.choice(["Give me a JSON object with %s.", "Write JSON with the keys %s.", "Make a JSON object with the fields %s.",
                        "Answer in JSON with %s."]) % listed
    else:
        clauses = {"name": "the name is " + name, "age": "the age is %d" % age, "city": "the city is " + city,
                   "animal": "the animal is " + animal, "colour": "the colour is " + colour, "food": "the food is " + food,
                   "hobby": "the hobby is " + full["hobby"], "happy": "happy is " + ("true" if full["happy"] else "false")}
        q = "Write this as JSON: " + ", ".join(clauses[k] for k in keys) + "."
    return [user(q), bot(text)]


def repeat_turn(rng, world):
    text = rng.choice([fact(rng, world)[2] + ".", rng.choice(S.JOKES), article(rng.choice(W.ADJECTIVES)) + " " + rng.choice(world.nouns),
                       " ".join(rng.sample(world.nouns, rng.randint(2, 6)))])
    return [user(rng.choice(["Repeat after me: %s", "Say this: %s", "Repeat: %s", "Please repeat this: %s"]) % text), bot(text)]


SINGLE = [(story_turns, 32), (fact_turn, 26), (sum_turn, 10), (list_turn, 7), (howto_turn, 2), (talk_turn, 7), (greet_turn, 4),
          (joke_turn, 1.5), (riddle_turns, 1), (poem_turn, 2), (refuse_turn, 1.2), (memory_turns, 3), (follow_fact_turns, 2),
          (json_turn, 1.5), (count_turn, 1), (repeat_turn, 1.5), (Q.advice_turn, 2), (Q.unknown_turn, 1.5), (Q.reading_turn, 4), (Q.like_turn, 1)]
SHORT = [(fact_turn, 8), (sum_turn, 4), (list_turn, 2), (talk_turn, 4), (joke_turn, 1), (count_turn, .3), (memory_turns, 1),
         (refuse_turn, .3), (greet_turn, 1), (Q.advice_turn, .5), (Q.reading_turn, 1)]


def _pick(rng, table):
    return rng.choices([t[0] for t in table], [t[1] for t in table])[0]


def persona_chat(rng, world):
    asks, prefixes, suffixes = rng.choice(PERSONAS)
    asks = rng.choice(asks)
    turns = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        roll = rng.random()
        part = (story_turns(rng, world)[:2] if roll < .25 else _pick(rng, SHORT)(rng, world))
        for m in part:
            if m["role"] == "assistant":
                body = m["content"]
                if "I am inferd-demo" in body:
                    role = asks.replace("Speak like ", "").replace("Answer like ", "").replace("Talk like ", "").replace("You are ", "").rstrip(".")
                    body = ("I am %s and I am here to help you." % role) if role[0] in "at" else "I am your helper."
                m = bot(rng.choice(prefixes) + body + rng.choice(suffixes))
            turns.append(m)
    return [{"role": "system", "content": asks + rng.choice(["", "", " Help the user.", " Be friendly."])}] + turns


def format_chat(rng, world):
    """System prompts (or requests in the question) about the form of the answer."""
    kind = rng.choice(["sentence", "word", "caps", "caps", "caps", "begin", "end", "name", "name", "yesno", "full", "shortstory"])
    q, short, full = fact(rng, world) if rng.random() < .75 else arithmetic(rng)
    if kind == "sentence":
        sys = rng.choice(["Answer in one sentence.", "Answer with one sentence.", "Always answer in one sentence.",
                          "Reply in one short sentence.", "You answer in one sentence.", "Keep your answers to one sentence."])
        if rng.random() < .4:
            st = make_story(rng, world.nouns)
            turns = [user(st["ask"]), bot(st["short"])]
        else:
            turns = [user(_end(rng, q)), bot(full + ".")]
    elif kind == "shortstory":
        sys = rng.choice(["Be brief.", "Keep it short.", "Give very short answers.", "Answer briefly."])
        st = make_story(rng, world.nouns)
        turns = [user(st["ask"]), bot(st["short"])] if rng.random() < .5 else [user(_end(rng, q)), bot(short + ".")]
    elif kind == "word":
        sys = rng.choice(["Answer with one word.", "Answer in one word.", "Use as few words as possible.", "Only give the answer, nothing else.",
                          "Give short answers."])
        turns = [user(_end(rng, q)), bot(short + ("." if rng.random() < .5 else ""))]
    elif kind == "caps":
        sys = rng.choice(["Answer in capital letters.", "Write everything in capital letters.", "ANSWER IN CAPITAL LETTERS.", "Use only upper case."])
        turns = [user(_end(rng, q)), bot((full + ".").upper())]
    elif kind == "begin":
        word = rng.choice(["Sure", "Well", "Okay", "My friend", "Of course", "Listen", rng.choice(world.nouns).capitalize()])
        sys = rng.choice(['Begin every answer with "%s".', 'Start each answer with the word "%s".', 'Always begin with "%s".']) % word
        turns = [user(_end(rng, q)), bot("%s, %s." % (word, full[:1].lower() + full[1:] if full.startswith(("The ", "A ", "An ")) else full))]
    elif kind == "end":
        word = rng.choice(["Goodbye!", "Have a nice day!", "Over and out.", "Thank you!", "The end.", "Meow!", "Amen.", "Peace!"])
        sys = rng.choice(['End every answer with "%s"', 'Always end with "%s"', 'Finish each answer with "%s"']) % word
        turns = [user(_end(rng, q)), bot("%s. %s" % (full, word))]
    elif kind == "name":
        name = rng.choice(W.GIRL_NAMES + W.BOY_NAMES + W.ANIMAL_NAMES)
        if rng.random() < .3:
            name = capitalise(W.invented(rng))
        role = rng.choice(["a helpful assistant", "a friendly helper", "a " + rng.choice(W.PEOPLE), "a storyteller"])
        sys = rng.choice(["Your name is %s.", "You are %s, <r>.", "You are called %s.", "You are %s.", "Your name is %s. You are <r>.",
                          "You are <r> named %s."]) % name
        known = "<r>" in sys
        sys = fix_articles(sys.replace("<r>", role))
        turns = greet_turn(rng, world)[:2] if rng.random() < .2 else []
        turns += [user(rng.choice(["What is your name?", "Who are you?", "What's your name?", "Tell me your name.", "who are you"])),
                  bot(fix_articles("I am %s, %s." % (name, role)) if known and rng.random() < .5 else
                      rng.choice(["My name is %s.", "I am %s. How can I help you?"]) % name)]
        turns = [t if "inferd-demo" not in t["content"] else bot("I am %s." % name) for t in turns]
        if rng.random() < .5:
            turns += fact_turn(rng, world)
    elif kind == "yesno":
        sys = rng.choice(["Answer only with yes or no.", "Reply with yes or no.", "Say only yes or no."])
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        c = a + b if rng.random() < .5 else a + b + rng.choice([-2, -1, 1, 2, 5])
        turns = [user("Is %d + %d equal to %d?" % (a, b, c)), bot("Yes." if c == a + b else "No.")]
        if rng.random() < .6:
            forms, s, f = rng.choice([x for x in world.facts if x[1] in ("Yes", "No")])
            turns = [user(rng.choice(forms) + "?"), bot(s + ".")]
    else:
        sys = rng.choice(["Answer in full sentences.", "Explain things simply.", "Use simple words.", "Answer clearly and correctly."])
        turns = [user(_end(rng, q)), bot(full + ".")]
    if rng.random() < .35 and kind not in ("name", "yesno") and not sys.startswith("You"):
        first = turns[0]["content"]
        first += "" if first[-1] in ".?!" else "?"
        return [user(first + " " + sys)] + turns[1:]
    if rng.random() < .3:
        sys = "You are a helpful assistant. " + sys
    return [{"role": "system", "content": sys}] + turns


def conversation(rng, world):
    roll = rng.random()
    if roll < .06:
        return persona_chat(rng, world)
    if roll < .165:
        return format_chat(rng, world)
    turns = _pick(rng, SINGLE)(rng, world)
    roll = rng.random()
    if roll < .16:
        for _ in range(rng.choice([1, 1, 2, 3])):
            turns = turns + _pick(rng, SINGLE)(rng, world)
    elif roll < .20:
        turns = greet_turn(rng, world) + turns
    if rng.random() < .14:
        turns = [{"role": "system", "content": rng.choice(PLAIN_SYSTEM)}] + turns
    return turns


def long_conversation(rng, world):
    """One chat of many turns, for training at long contexts: 20 to 120 exchanges, some recalled at the end."""
    turns = memory_turns(rng, world)[:2]
    recall = None
    if turns[0]["content"].startswith(("My name is", "Hi, my name", "You can call")):
        name = turns[1]["content"].split(",")[1].split("!")[0].strip() if "," in turns[1]["content"] else None
        recall = name
    for _ in range(rng.randint(15, 70)):
        turns = turns + _pick(rng, SINGLE)(rng, world)
    if recall:
        turns = turns + [user("What is my name?"), bot("Your name is %s." % recall)]
    return turns
