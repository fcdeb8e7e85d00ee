"""Word lists for the template generators. Simple, modern, harmless words only."""

ANIMALS = """fox rabbit bear mouse owl frog cat dog hen duck goose sheep goat cow horse donkey pig lion tiger elephant
monkey giraffe zebra hippo crocodile turtle tortoise snail bee ant butterfly spider ladybird squirrel hedgehog badger
beaver otter deer wolf panda koala kangaroo penguin seal whale dolphin shark octopus crab starfish parrot crow swan
sparrow robin eagle peacock camel llama bat mole lizard snake goldfish puppy kitten lamb calf foal chick cub pony
hamster caterpillar firefly grasshopper cricket raccoon moose reindeer polar_bear flamingo pelican seagull woodpecker
hummingbird rooster turkey unicorn dragon dinosaur jellyfish sea_horse chameleon gorilla cheetah leopard rhino ostrich
buffalo walrus ferret guinea_pig toad dragonfly beetle worm magpie pigeon stork heron lobster salmon""".split()
ANIMALS = [a.replace("_", " ") for a in ANIMALS]

PEOPLE = """princess prince king queen farmer baker pirate knight wizard witch fairy giant elf dwarf mermaid robot
astronaut teacher doctor nurse sailor fisherman gardener painter singer dancer cook tailor shoemaker carpenter miller
shepherd woodcutter postman firefighter policeman scientist inventor explorer magician clown builder driver pilot
librarian musician grandmother grandfather boy girl child baby student hunter merchant captain ghost troll goblin alien
snowman scarecrow superhero detective cowboy ninja gnome monster vampire beekeeper clockmaker blacksmith potter weaver
juggler poet writer vet farmer's_wife mayor soldier guard nanny twin lighthouse_keeper zookeeper bus_driver""".split()
PEOPLE = [p.replace("_", " ") for p in PEOPLE]

# objects that a child can own, find, make or lose
OBJECTS = """kite lamp ball boat drum bell book hat coat umbrella key mirror clock basket blanket bicycle balloon doll
teddy_bear toy_train lantern flute violin guitar trumpet piano map compass telescope coin ring necklace crown sword
shield wand broom cup teapot spoon bowl plate pot candle box chest suitcase bag backpack shoe boot sock scarf glove
mitten button needle ladder rope wheel cart sledge paintbrush pencil pen notebook letter postcard picture photograph
puzzle whistle feather shell stone pebble acorn seed flower rose sunflower apple pear cake pie cookie loaf_of_bread
pumpkin carrot egg nest snowball pillow bed chair table door window rug quilt camera radio computer phone rocket
spaceship submarine truck tractor bus car train aeroplane hot-air_balloon treasure_map music_box magic_carpet
birthday_present chocolate sandwich pancake potato watermelon strawberry cupcake jar_of_honey crayon magnet toothbrush
wheelbarrow swing sandcastle snow_globe toy_boat wooden_horse paper_plane jigsaw guitar marble bracelet locket
pocket_watch glass_slipper silver_spoon golden_egg red_thread old_violin tin_soldier""".split()
OBJECTS = [o.replace("_", " ") for o in OBJECTS]

# places and natural things that one can visit or watch; written as they appear after "about"
PLACES = """the_sea the_forest the_moon the_beach the_mountain the_river the_lake the_desert the_jungle the_island
the_castle the_farm the_garden the_zoo the_school the_library the_market the_village the_city the_park the_meadow
the_cave the_valley the_waterfall the_lighthouse the_windmill the_museum the_circus the_harbour the_bridge the_tower
the_attic the_cellar the_bakery the_toy_shop the_playground the_train_station the_old_house the_north_pole the_sun
the_stars the_rain the_snow the_wind the_rainbow the_storm the_volcano the_night_sky the_swamp the_orchard the_well
the_secret_garden the_tree_house the_haunted_house the_treasure_island the_hidden_door the_ice_palace space
outer_space winter summer spring autumn Christmas the_first_day_of_school a_birthday_party a_long_journey a_rainy_day
a_snowy_night a_picnic a_holiday a_camping_trip a_flood a_race the_full_moon a_thunderstorm""".split()
PLACES = [p.replace("_", " ") for p in PLACES]

VIRTUES = {
    "friendship": "a true friend is worth more than gold",
    "honesty": "it is always better to tell the truth",
    "courage": "being brave means doing the right thing even when you are afraid",
    "kindness": "a kind deed is never wasted",
    "sharing": "things taste better when we share them",
    "patience": "good things come to those who wait",
    "hard work": "hard work pays in the end",
    "helping others": "when we help others, we help ourselves too",
    "love": "love makes every house a home",
    "hope": "there is always hope, even in the dark",
    "family": "a family takes care of its own",
    "teamwork": "together we can do what nobody can do alone",
    "gratitude": "we should be thankful for small things",
    "greed": "he who wants everything may lose everything",
    "pride": "pride comes before a fall",
    "forgiveness": "it is good to forgive and to begin again",
    "curiosity": "those who ask questions learn a lot",
    "trust": "trust is slow to grow and quick to break",
    "generosity": "the more you give, the more you have",
    "wisdom": "a wise head listens before it speaks",
    "jealousy": "it is better to be happy with what you have",
    "a promise": "a promise must be kept",
    "a lie": "one small lie can make big trouble",
    "a secret": "a good friend can keep a secret",
    "dreams": "dreams can come true if you work for them",
}

GIRL_NAMES = """Mia Lily Anna Emma Zoe Ruby Nora Ella Clara Lucy Rosa Maya Ida Amy Tilda Hanna Grace Molly Daisy Poppy
Lena Sara Julia Nina Eva Alice Ivy Luna Stella Hazel Marta Olga Asha Amina Priya Leila Yuki Mei Aisha Zuri Kira Tara
Bella Rita Greta Wilma Heidi Sofia Carla Elsa Flora June Pearl Penny Tessa Vera Willa""".split()
BOY_NAMES = """Tom Max Ben Sam Leo Finn Jack Tim Oscar Felix Hugo Otto Paul Peter Noah Luke Adam Daniel Omar Ravi Kofi
Juma Ali Hassan Kenji Bruno Carlo Diego Emil Fred George Harry Ivan Jonas Karl Liam Milo Nils Oliver Pablo Robin Simon
Theo Victor Walter Yusuf Zack Alfie Archie Barney Charlie Duncan Eddie Toby Rory Jasper Gus Hector""".split()
ANIMAL_NAMES = """Pip Coco Biscuit Nutmeg Pepper Ginger Pebble Bramble Clover Dusty Fluffy Giggles Hopper Inky Jolly
Kiki Lucky Mango Nibbles Oaky Patch Quill Rusty Scamper Tumble Umber Velvet Whisker Ziggy Bubbles Cinnamon Dot Echo
Fern Gizmo Honey Jingle Midge Noodle Olive Pickle Rollo Sunny Tiny Waffles Zigzag Bruno Milo Luna Max Rosie Toby Daisy
Felix Oscar Bella Teddy Winnie Hugo Mimi Momo Bobo Tilly Ollie Maple Poppy""".split()

FRIEND_ANIMALS = """mouse owl rabbit frog robin snail hedgehog squirrel duck turtle sparrow fox cat dog bee goat
pony beaver crow mole""".split()

ADJECTIVES = """little small big brave clever shy kind lazy curious young old funny happy sad lonely tiny hungry proud
quiet gentle careful playful grumpy friendly cheerful sleepy busy wise poor rich strong silly""".split()
COLOURS = "red blue green yellow white black brown golden silver pink purple orange grey".split()

WILD_PLACES = """forest|wood|meadow|valley|garden|jungle|hills|mountains|orchard|marsh|park|farm""".split("|")
HOMES = ["{a small house|a cosy cottage|a tiny hut|a wooden cabin} {at the edge of the forest|near the river|on a green "
         "hill|by the sea|beside a big old oak tree|in a quiet village|at the end of a long road|under a tall mountain}",
         "{a small town|a quiet village|a busy city|a little valley} {by the sea|near the mountains|far away|beside a "
         "wide river|full of flowers|between two green hills}"]
TREATS = """apple pie|honey cake|warm soup|pancakes|fresh bread|strawberries|cookies|sweet berries|hot chocolate|roasted
 chestnuts|carrot cake|blueberry muffins|plum jam|vegetable stew|nuts and raisins""".replace("\n", "").split("|")

FOODS = [f.replace("_", " ") for f in """pizza soup bread rice pasta cheese apples bananas chocolate pancakes carrots cake ice_cream noodles salad
strawberries potatoes fish eggs cookies tomatoes beans sandwiches""".split()]
HOBBIES = """reading swimming drawing singing dancing cooking football chess painting running cycling gardening fishing
hiking skating playing_the_piano playing_the_guitar taking_photos writing_stories building_model_ships knitting
watching_birds baking playing_tennis climbing""".split()
HOBBIES = [h.replace("_", " ") for h in HOBBIES]
CITIES = """Paris London Rome Berlin Madrid Lisbon Vienna Tokyo Cairo Nairobi Delhi Sydney Boston Chicago Toronto Oslo
Dublin Athens Prague Lima Seoul Hamburg Munich Milan Leeds""".split()
FEAST = [f.replace("_", " ") for f in "cake honey ice_cream pancakes chocolate cheese pizza jam soup bread".split()]
_ONSETS = "b br c cl d dr f fl g gl gr h j k l m n p pl qu r s sh sl sn st t tr tw v w wh y z zw".split()
_VOWELS = "a e i o u oo ee ai ou".split()
_CODAS = "b ck d ff g l ll m mp n nk p r rt sh sk t x zz".split()


def invented(rng):
    """A word that exists nowhere, such as "blimp" or "zoorsk", so that the model learns to copy what it reads."""
    word = rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
    if rng.random() < .45:
        word += rng.choice(["er", "le", "y", "o", "ing", "a", "ock", "in", "ster", "ot", "ette"])
    return word


FAMILY = """grandmother grandfather mother father sister brother aunt uncle cousin cat dog rabbit friend teacher neighbour baby
pony son daughter family""".split()
