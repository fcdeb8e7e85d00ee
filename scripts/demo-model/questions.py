"""Generators of questions that need more than a table look-up: texts to read, comparisons, groups, advice, spelling."""
import facts
import smalltalk as S
import words as W
from textgen import article, capitalise, expand

# from small to big; neighbours are never compared
SIZES = ["an ant", "a bee", "a mouse", "a frog", "a hamster", "a squirrel", "a hen", "a rabbit", "a cat", "a fox", "a dog", "a sheep", "a wolf",
         "a lion", "a tiger", "a cow", "a horse", "a bear", "a rhino", "an elephant", "a whale", "a house", "a castle", "a mountain", "the moon", "the Earth", "the sun"]
SPEEDS = ["a snail", "a turtle", "a duck", "a child", "a dog", "a horse", "a car", "a train", "an aeroplane", "a rocket"]
WEIGHTS = ["a feather", "an egg", "an apple", "a book", "a chair", "a table", "a horse", "a car", "an elephant", "a ship"]
SCALES = [(SIZES, "bigger", "smaller"), (SPEEDS, "faster", "slower"), (WEIGHTS, "heavier", "lighter")]

ABILITIES = {
    "fly": ("a bird|an eagle|an owl|a bee|a butterfly|a bat|a duck|a fly|a pigeon|an aeroplane",
            "a fish|a dog|a cat|a cow|an elephant|a horse|a snake|a penguin|a stone|a car|a snail|a pig"),
    "swim": ("a fish|a duck|a frog|a dolphin|a whale|a penguin|a seal|a dog|a crocodile|a turtle",
             "a stone|a butterfly|a bee|a spider|a chair|a hen"),
    "bark": ("a dog|a puppy", "a cat|a cow|a bird|a fish|a frog|a horse"),
    "climb trees": ("a cat|a monkey|a squirrel|a koala|a bear", "a fish|a cow|a horse|an elephant|a duck|a whale"),
    "talk": ("a teacher|a child|a doctor|a farmer", "a stone|a dog|a table|a fish|a tree|a spoon"),
    "lay eggs": ("a hen|a duck|a bird|a frog|a turtle|a snake|an owl", "a dog|a cat|a cow|a horse|a lion|a whale|a rabbit"),
}
GROUPS = {"an animal": "dog cat horse cow lion tiger rabbit fox bear monkey wolf frog mouse elephant sheep goat",
          "a bird": "sparrow robin owl eagle crow swan duck parrot penguin pigeon stork", "an insect": "ant bee butterfly fly beetle",
          "a fruit": "apple banana orange pear cherry grape strawberry peach plum mango lemon melon kiwi",
          "a vegetable": "carrot potato onion cucumber pea bean cabbage spinach broccoli leek", "a colour": "red blue green yellow pink brown",
          "a country": "France Germany Spain Italy Japan China India Brazil Kenya Egypt Canada Mexico",
          "a city": "Paris London Berlin Rome Madrid Tokyo Cairo Nairobi Sydney Toronto", "a flower": "rose tulip daisy sunflower lily",
          "a tree": "oak pine birch maple willow", "a musical instrument": "piano guitar violin drum flute trumpet",
          "a planet": "Mars Jupiter Saturn Venus Mercury", "a drink": "tea coffee milk juice lemonade", "a tool": "hammer saw drill axe",
          "a sport": "football tennis basketball hockey", "a piece of furniture": "table chair bed sofa shelf",
          "a piece of clothing": "shirt hat coat scarf jacket sock", "a vehicle": "car bus train bicycle truck", "a month": "May June July March",
          "a day of the week": "Monday Tuesday Friday Sunday", "a season": "summer winter spring autumn"}
BARE = {"a colour", "a country", "a city", "a planet", "a drink", "a sport", "a month", "a day of the week", "a season"}

ADVICE = [
    ("What {should|can|shall} I {cook|make|eat} {for dinner|for lunch|today|tonight}?", "{How about|You could make|Maybe} {pasta with tomato sauce|vegetable soup|rice with vegetables|pancakes|a big salad with bread|potatoes and eggs}{.|. It is easy and good.}"),
    ("What should I wear {today|tomorrow|when it is cold|in winter}?", "{If it is cold, take a warm coat, a scarf and a hat.|Look out of the window first. If it is cold, take a warm coat.}"),
    ("What {should|can} I {read|read next}?", "{You could read a fairy tale by the Brothers Grimm.|How about The Wonderful Wizard of Oz?|You could read Alice in Wonderland or Peter Pan.}"),
    ("What {should|can} I do {today|at the weekend|this afternoon|when I am bored}?", "{You could take a walk, read a book or call a friend.|You could bake cookies or draw a picture.|You could visit a friend or go to the park.}"),
    ("How can I {sleep better|fall asleep}?", "{Go to bed early and turn off the screen.|Drink some warm milk and read a quiet book.|Try to go to bed at the same time every day.}"),
    ("How can I {make friends|find friends}?", "{Smile, say hello and listen well.|Be kind, ask questions and share your time.}"),
    ("How can I {learn better|do well at school|learn faster}?", "{Learn a little every day and take short breaks.|Read, ask questions and practise every day.}"),
    ("How can I {stay healthy|be healthy|live healthily}?", "{Eat vegetables, drink water, sleep well and move every day.|Sleep enough, walk every day and eat fruit and vegetables.}"),
    ("What {present|gift} should I buy for my {mother|father|friend|sister|brother|teacher}?", "{How about a book or some flowers?|A nice card and a box of chocolates are always good.|Maybe a warm scarf or a good book.}"),
    ("What is a good name for {a dog|my dog|a puppy}?", "{How about Max or Bella?|Rusty is a good name for a dog.|You could call the dog Buddy.}"),
    ("What is a good name for {a cat|my cat|a kitten}?", "{How about Luna or Whiskers?|Milo is a good name for a cat.|You could call the cat Mimi.}"),
    ("{I lost my keys|I can't find my keys|I lost my phone}. What should I do?", "{Think about where you had it last, and look there first.|Look in your bag, in your coat and on the table.}"),
    ("{My friend is angry with me|I had a fight with my friend}. What should I do?", "{Talk to your friend and say that you are sorry.|Wait a little, then talk in a calm way and listen well.}"),
    ("{I have a test tomorrow|I have an exam tomorrow}.", "Good luck! {Read your notes once more and go to bed early.|Sleep well and have a good breakfast.}"),
    ("{I am going on holiday|I am going on a trip|We are going on a trip}. What should I pack?", "{Pack clothes, a toothbrush, something to read and some snacks.|Take warm clothes, good shoes, water and a book.}"),
    ("{Can you recommend a game|What game can we play|What can I play with my friends}?", "{You could play hide and seek.|How about a game of chess or cards?|You could play football or a board game.}"),
    ("{Where should I go on holiday|Where can I travel}?", "{The sea is always nice, and so are the mountains.|You could visit Paris, Rome or a quiet lake.}"),
    ("{How do I become rich|How can I save money}?", "{Spend less than you earn and save a little every month.|Write down what you spend, and buy only what you need.}"),
    ("{What makes people happy|How can I be happy}?", "{Good friends, kind words and a little sunshine make people happy.|Help others, be thankful and do what you love.}"),
    ("{My dog is sick|My cat is sick|My tooth hurts|My head hurts}.", "I am sorry to hear that. {A doctor can help.|Please ask a doctor for help.}"),
]


def comparison(rng):
    """(question, short, full) about size, speed or weight."""
    scale, more, less = rng.choice(SCALES)
    i = rng.randrange(len(scale) - 2)
    small, big = scale[i], scale[rng.randrange(i + 2, len(scale))]
    pair = [small, big]
    rng.shuffle(pair)
    word, yes = rng.choice([(more, big), (less, small)])
    other = small if yes == big else big
    full = "%s is %s than %s" % (capitalise(yes), word, other)
    if rng.random() < .5:
        return rng.choice(["Which is %s, %s or %s?", "What is %s, %s or %s?", "Which is %s: %s or %s?"]) % (word, *pair), capitalise(yes), full
    right = pair[0] == yes
    q = "Is %s %s than %s?" % (pair[0], word, pair[1])
    return q, "Yes" if right else "No", ("Yes, %s" if right else "No, %s") % (full[:1].lower() + full[1:])


def ability(rng):
    verb = rng.choice(sorted(ABILITIES))
    can, cannot = (x.split("|") for x in ABILITIES[verb])
    yes = rng.random() < .5
    who = rng.choice(can if yes else cannot)
    return "Can %s %s?" % (who, verb), "Yes" if yes else "No", "%s, %s %s %s" % ("Yes" if yes else "No", who, "can" if yes else "cannot", verb)


def group(rng):
    name = rng.choice(sorted(GROUPS))
    yes = rng.random() < .5
    home = name
    if not yes:
        banned = {name, "an animal"} if name in ("a bird", "an insect") else {name, "a bird", "an insect"} if name == "an animal" else {name}
        home = rng.choice([g for g in sorted(GROUPS) if g not in banned])
    item = rng.choice(GROUPS[home].split())
    what = item if home in BARE else article(item)
    if yes and rng.random() < .4:
        return "What is %s?" % what, capitalise(name), "%s is %s" % (capitalise(what), name)
    if home in ("a fruit", "a vegetable") and rng.random() < .4:
        return "Is %s a fruit or a vegetable?" % what, capitalise(home), "%s is %s" % (capitalise(what), home)
    return "Is %s %s?" % (what, name), "Yes" if yes else "No", \
        ("Yes, %s is %s" % (what, name)) if yes else "No, %s is not %s. It is %s" % (what, name, home)


def city(rng):
    country, town = rng.choice(facts.table(facts.CAPITALS))
    q = rng.choice(["In which country is %s?", "Where is %s?", "Which country is %s in?", "What is %s?"]) % town
    full = "%s is the capital of %s" % (town, country) if q.startswith("What") else "%s is in %s" % (town, country)
    return q, capitalise(country), full


def spelling(rng):
    word = rng.choice(rng.choice([W.ANIMALS, W.FOODS, W.COLOURS]))
    while " " in word or len(word) > 8:
        word = rng.choice(W.ANIMALS)
    if rng.random() < .6:
        spelled = "-".join(word.upper())
        return rng.choice(["How do you spell %s?", "Spell %s.", "Spell the word %s.", "How do you write %s?"]) % word, spelled, spelled
    if rng.random() < .5:
        return "What is the first letter of %s?" % word, word[0].upper(), "The first letter of %s is %s" % (word, word[0].upper())
    return "What letter does %s start with?" % word, word[0].upper(), "%s starts with %s" % (capitalise(word), word[0].upper())


def derived(rng):
    return rng.choices([comparison, ability, group, city, spelling], [5, 3, 6, 2, 4])[0](rng)


def like_turn(rng, _world):
    what = rng.choice(W.FOODS + W.HOBBIES + W.COLOURS + [a + "s" for a in W.ANIMALS[:40]] + ["music", "stories", "books", "games", "rain"])
    what = "the colour " + what if what in W.COLOURS else what
    return [{"role": "user", "content": rng.choice(["Do you like %s?", "Do you love %s?", "What do you think about %s?"]) % what},
            {"role": "assistant", "content": expand(rng, "{I am a program, but that sounds nice.|That sounds nice!} {Do you like <w>?|What do you "
                                                         "like about <w>?|And what do you think?}", {"w": what})}]


def advice_turn(rng, _world):
    q, a = rng.choice(ADVICE)
    return [{"role": "user", "content": expand(rng, q)}, {"role": "assistant", "content": expand(rng, a)}]


def unknown_turn(rng, world):
    return [{"role": "user", "content": rng.choice(world.questions)}, {"role": "assistant", "content": expand(rng, rng.choice(S.REFUSE))}]


def _facts_of_text(rng):
    """One sentence of a small text and the questions it answers: (sentence, [(question, answer)])."""
    name = rng.choice(W.GIRL_NAMES + W.BOY_NAMES) if rng.random() < .7 else capitalise(W.invented(rng))
    he = "She" if name in W.GIRL_NAMES else "He"
    kind = rng.choice(W.ANIMALS + W.PEOPLE)
    roll = rng.randrange(8)
    if roll == 0:
        return name, "%s is %s." % (name, article(kind)), [("Who is %s?" % name, "%s is %s." % (name, article(kind))),
                                                            ("What is the name of the %s?" % kind, "The %s is called %s." % (kind, name))]
    if roll == 1:
        c = rng.choice(W.CITIES)
        return name, "%s lives in %s." % (name, c), [("Where does %s live?" % name, "%s lives in %s." % (name, c)),
                                                      ("Who lives in %s?" % c, "%s lives in %s." % (name, c))]
    if roll == 2:
        n = rng.randint(2, 90)
        return name, "%s is %d years old." % (name, n), [("How old is %s?" % name, "%s is %d years old." % (name, n))]
    if roll == 3:
        thing, colour = rng.choice(W.OBJECTS), rng.choice(W.COLOURS)
        return name, "%s has a %s %s." % (name, colour, thing), [
            ("What colour is %s's %s?" % (name, thing), "%s's %s is %s." % (name, thing, colour)),
            ("What does %s have?" % name, "%s has a %s %s." % (name, colour, thing)),
            ("Who has the %s %s?" % (colour, thing), "%s has the %s %s." % (name, colour, thing))]
    if roll == 4:
        h = rng.choice(W.HOBBIES)
        return name, "%s likes %s." % (name, h), [("What does %s like?" % name, "%s likes %s." % (name, h)),
                                                   ("Who likes %s?" % h, "%s likes %s." % (name, h))]
    if roll == 5:
        pet, pn = rng.choice(["dog", "cat", "rabbit", "pony", "parrot", "duck", "hamster"]), rng.choice(W.ANIMAL_NAMES)
        return name, "%s has a %s called %s." % (name, pet, pn), [
            ("What is the name of the %s?" % pet, "The %s is called %s." % (pet, pn)), ("Who is %s?" % pn, "%s is %s's %s." % (pn, name, pet)),
            ("What is %s's %s called?" % (name, pet), "%s's %s is called %s." % (name, pet, pn))]
    if roll == 6:
        f = rng.choice(W.FOODS)
        return name, "%s's favourite food is %s." % (name, f), [("What is %s's favourite food?" % name, "%s's favourite food is %s." % (name, f))]
    other = rng.choice([x for x in W.GIRL_NAMES + W.BOY_NAMES if x != name])
    okind = rng.choice(W.FRIEND_ANIMALS)
    return name, "One day %s met %s the %s. They became friends." % (name, other, okind), [
        ("Whom did %s meet?" % name, "%s met %s the %s." % (name, other, okind)),
        ("What was the name of the %s?" % okind, "The %s was called %s." % (okind, other)),
        ("Who is %s's friend?" % name, "%s's friend is %s the %s." % (name, other, okind))]


def reading_turn(rng, _world):
    """A small text in the conversation, then questions about it."""
    parts, seen = [], set()
    for _ in range(rng.randint(1, 5)):
        name, sentence, qs = _facts_of_text(rng)
        if not any(q in seen for q, _ in qs):
            parts.append((sentence, qs))
            seen.update(q for q, _ in qs)
    text = " ".join(p[0] for p in parts)
    picked = [rng.choice(p[1]) for p in rng.sample(parts, rng.randint(1, min(3, len(parts))))]
    lead = rng.choice(["", "Read this: ", "Here is a text. ", "Listen: ", "Text: "])
    if rng.random() < .25:
        ask = {"role": "user", "content": rng.choice(["Tell me something about some people.", "Say something about people.", "Make up some facts."])}
        turns = [ask, {"role": "assistant", "content": text}, {"role": "user", "content": picked[0][0]}]
    else:
        turns = [{"role": "user", "content": lead + text + rng.choice([" ", "\n", "\n\n"]) + picked[0][0]}]
    turns.append({"role": "assistant", "content": picked[0][1]})
    for q, a in picked[1:]:
        turns += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
    return turns
