"""Simple facts as tables. Each entry of qa() is (questions, short answer, full sentence)."""

CAPITALS = """France=Paris;Germany=Berlin;Spain=Madrid;Italy=Rome;Portugal=Lisbon;England=London;the United Kingdom=London
Scotland=Edinburgh;Wales=Cardiff;Ireland=Dublin;Austria=Vienna;Switzerland=Bern;Belgium=Brussels;the Netherlands=Amsterdam
Luxembourg=Luxembourg;Denmark=Copenhagen;Sweden=Stockholm;Norway=Oslo;Finland=Helsinki;Iceland=Reykjavik;Poland=Warsaw
the Czech Republic=Prague;Slovakia=Bratislava;Hungary=Budapest;Romania=Bucharest;Bulgaria=Sofia;Greece=Athens
Turkey=Ankara;Ukraine=Kyiv;Russia=Moscow;Estonia=Tallinn;Latvia=Riga;Lithuania=Vilnius;Croatia=Zagreb;Serbia=Belgrade
Slovenia=Ljubljana;Albania=Tirana;Malta=Valletta;Cyprus=Nicosia;Egypt=Cairo;Morocco=Rabat;Algeria=Algiers;Tunisia=Tunis
Libya=Tripoli;Kenya=Nairobi;Uganda=Kampala;Tanzania=Dodoma;Ethiopia=Addis Ababa;Ghana=Accra;Nigeria=Abuja;Senegal=Dakar
Mali=Bamako;Rwanda=Kigali;Zambia=Lusaka;Zimbabwe=Harare;Angola=Luanda;Mozambique=Maputo;Namibia=Windhoek
Madagascar=Antananarivo;Sudan=Khartoum;China=Beijing;Japan=Tokyo;South Korea=Seoul;North Korea=Pyongyang;India=New Delhi
Pakistan=Islamabad;Bangladesh=Dhaka;Nepal=Kathmandu;Thailand=Bangkok;Vietnam=Hanoi;Cambodia=Phnom Penh;Laos=Vientiane
Malaysia=Kuala Lumpur;Indonesia=Jakarta;the Philippines=Manila;Singapore=Singapore;Mongolia=Ulaanbaatar;Iran=Tehran
Iraq=Baghdad;Syria=Damascus;Lebanon=Beirut;Jordan=Amman;Saudi Arabia=Riyadh;Qatar=Doha;Kuwait=Kuwait City;Oman=Muscat
Afghanistan=Kabul;Kazakhstan=Astana;Georgia=Tbilisi;Armenia=Yerevan;Canada=Ottawa;the United States=Washington, D.C.
Mexico=Mexico City;Cuba=Havana;Jamaica=Kingston;Guatemala=Guatemala City;Costa Rica=San José;Panama=Panama City
Colombia=Bogotá;Venezuela=Caracas;Ecuador=Quito;Peru=Lima;Brazil=Brasília;Argentina=Buenos Aires;Chile=Santiago
Uruguay=Montevideo;Paraguay=Asunción;Australia=Canberra;New Zealand=Wellington;Fiji=Suva"""

LANGUAGES = """France=French;Germany=German;Spain=Spanish;Italy=Italian;Portugal=Portuguese;Brazil=Portuguese;Mexico=Spanish
Japan=Japanese;China=Chinese;Russia=Russian;England=English;Poland=Polish;Greece=Greek;Turkey=Turkish;Sweden=Swedish
Norway=Norwegian;Denmark=Danish;Finland=Finnish;the Netherlands=Dutch;Egypt=Arabic;Australia=English;Argentina=Spanish
Austria=German;Hungary=Hungarian;Thailand=Thai;Vietnam=Vietnamese;South Korea=Korean"""

CONTINENTS = """France=Europe;Germany=Europe;Spain=Europe;Italy=Europe;Poland=Europe;Sweden=Europe;Greece=Europe;China=Asia
Japan=Asia;India=Asia;Thailand=Asia;Vietnam=Asia;Nepal=Asia;Egypt=Africa;Kenya=Africa;Ghana=Africa;Nigeria=Africa
Morocco=Africa;South Africa=Africa;Brazil=South America;Peru=South America;Chile=South America;Argentina=South America
Canada=North America;Mexico=North America;the United States=North America;Norway=Europe;Portugal=Europe;Mali=Africa"""

COLOURS = """the sky=blue;grass=green;snow=white;the sun=yellow;a banana=yellow;a tomato=red;a strawberry=red;a lemon=yellow
an orange=orange;a carrot=orange;milk=white;coal=black;blood=red;chocolate=brown;a frog=green;a flamingo=pink;a raven=black
a crow=black;the sea=blue;a leaf=green;a cucumber=green;a pumpkin=orange;a lime=green;a cherry=red;a blueberry=blue
an elephant=grey;a mouse=grey;a polar bear=white;a swan=white;a panda=black and white;a zebra=black and white;gold=yellow
silver=grey;a fire engine=red;spinach=green;broccoli=green;butter=yellow;a plum=purple;an aubergine=purple;salt=white
sugar=white;coffee=brown;honey=golden;a fox=red;a penguin=black and white;a ladybird=red with black spots;the night=black
a cloud=white;a sunflower=yellow;a ripe apple=red or green;a school bus=yellow;a pea=green;a brick=red;mud=brown;ash=grey"""

SOUNDS = """dog=woof;cat=meow;cow=moo;sheep=baa;pig=oink;duck=quack;horse=neigh;rooster=cock-a-doodle-doo;hen=cluck
lion=roar;mouse=squeak;bee=buzz;snake=hiss;owl=hoot;frog=croak;donkey=hee-haw;wolf=howl;goat=bleat;crow=caw;goose=honk
turkey=gobble;chick=cheep;bear=growl;monkey=chatter;elephant=trumpet"""

BABIES = """dog=puppy;cat=kitten;cow=calf;horse=foal;sheep=lamb;pig=piglet;duck=duckling;hen=chick;goose=gosling;goat=kid
bear=cub;lion=cub;fox=cub;swan=cygnet;frog=tadpole;kangaroo=joey;deer=fawn;owl=owlet;butterfly=caterpillar;rabbit=kit
elephant=calf;whale=calf;seal=pup;eagle=eaglet;wolf=pup"""

HOMES = """bird=in a nest;bee=in a hive;dog=in a kennel;horse=in a stable;lion=on the grasslands of Africa;fish=in water
rabbit=in a burrow;spider=in a web;bear=in a den;fox=in a den;penguin=in the cold south;polar bear=in the Arctic
camel=in the desert;monkey=in the jungle;cow=on a farm;pig=on a farm;ant=in an anthill;mole=under the ground;whale=in the sea
kangaroo=in Australia;panda=in China;koala=in Australia;tiger=in Asia;squirrel=in a tree;beaver=in a lodge by the river
crocodile=in rivers and swamps;snail=in its shell;shark=in the sea;owl=in a hollow tree;bat=in a cave"""

EATS = """cow=grass;horse=grass and hay;rabbit=grass and carrots;cat=mice and fish;dog=meat and dog food;lion=meat;panda=bamboo
koala=eucalyptus leaves;monkey=fruit and nuts;squirrel=nuts and seeds;bee=nectar;frog=insects;bird=seeds and worms
elephant=grass, leaves and fruit;giraffe=leaves;shark=fish;mouse=grain and cheese;bear=berries, fish and honey;sheep=grass
penguin=fish;owl=mice;goat=grass and leaves;tiger=meat;wolf=meat;duck=plants and small insects;spider=insects"""

LEGS = """dog=four;cat=four;cow=four;horse=four;bird=two;duck=two;human=two;spider=eight;ant=six;bee=six;octopus=eight arms
snake=no legs;fish=no legs;worm=no legs;butterfly=six;crab=ten;elephant=four;hen=two;frog=four;snail=no legs;lion=four
mouse=four;ladybird=six;penguin=two;kangaroo=two strong back legs and two short front legs;table=four;chair=four"""

OPPOSITES = """hot=cold;big=small;tall=short;fast=slow;happy=sad;day=night;up=down;left=right;good=bad;old=young;new=old
light=dark;heavy=light;hard=soft;wet=dry;full=empty;open=closed;early=late;rich=poor;strong=weak;loud=quiet;clean=dirty
near=far;high=low;long=short;wide=narrow;thick=thin;deep=shallow;easy=difficult;right=wrong;true=false;black=white
yes=no;hello=goodbye;begin=end;start=stop;first=last;inside=outside;in=out;on=off;over=under;above=below;before=after
always=never;all=none;many=few;more=less;love=hate;friend=enemy;win=lose;laugh=cry;give=take;push=pull;come=go;buy=sell
remember=forget;wake=sleep;brave=afraid;kind=mean;beautiful=ugly;sweet=sour;sharp=blunt;smooth=rough;cheap=expensive
safe=dangerous;same=different;summer=winter;sunrise=sunset;north=south;east=west;boy=girl;man=woman;king=queen
brother=sister;mother=father;war=peace;question=answer;arrive=leave;find=lose;lazy=hard-working;alive=dead;front=back
top=bottom;warm=cool;possible=impossible;asleep=awake;polite=rude;healthy=ill;borrow=lend;noise=silence;alone=together"""

PLURALS = """mouse=mice;child=children;man=men;woman=women;foot=feet;tooth=teeth;goose=geese;sheep=sheep;fish=fish;leaf=leaves
wolf=wolves;knife=knives;box=boxes;bus=buses;city=cities;baby=babies;cat=cats;dog=dogs;house=houses;person=people;ox=oxen
story=stories;potato=potatoes;tomato=tomatoes;half=halves;life=lives;shelf=shelves;deer=deer;berry=berries;key=keys;toy=toys
church=churches;glass=glasses;book=books;tree=trees;fox=foxes;pony=ponies;lady=ladies;wife=wives;thief=thieves"""

PAST = """go=went;eat=ate;run=ran;see=saw;come=came;take=took;give=gave;sing=sang;swim=swam;write=wrote;read=read;drink=drank
buy=bought;think=thought;bring=brought;catch=caught;teach=taught;sleep=slept;fly=flew;grow=grew;know=knew;fall=fell
find=found;make=made;say=said;tell=told;speak=spoke;break=broke;begin=began;drive=drove;ride=rode;sit=sat;stand=stood
play=played;walk=walked;jump=jumped;help=helped;work=worked;laugh=laughed;look=looked;have=had;be=was;do=did;get=got"""

RHYMES = """cat=hat;dog=frog;house=mouse;tree=bee;sun=fun;moon=spoon;star=car;day=play;night=light;book=cook;ball=tall
cake=lake;rain=train;boat=goat;fish=dish;king=ring;bear=chair;hen=pen;box=fox;sky=fly;snow=go;bed=red;sing=wing
blue=shoe;green=queen;time=lime;door=floor;nose=rose;hand=sand;head=bread;stone=bone;flower=tower;kite=bite;pig=wig"""

JOBS = """baker=bakes bread and cakes;teacher=teaches children at school;doctor=helps sick people get well
farmer=grows food and looks after animals;firefighter=puts out fires and saves people;pilot=flies aeroplanes
fisherman=catches fish;tailor=makes and mends clothes;gardener=looks after plants and flowers;cook=makes meals
painter=paints pictures or walls;singer=sings songs;police officer=keeps people safe;nurse=takes care of sick people
dentist=looks after our teeth;carpenter=makes things out of wood;plumber=repairs water pipes;vet=takes care of sick animals
astronaut=travels to space;librarian=works in a library and helps people find books;builder=builds houses
driver=drives a car, a bus or a truck;scientist=studies how the world works;writer=writes books and stories
musician=plays music;postman=brings letters and parcels;shoemaker=makes and repairs shoes;judge=decides cases in a court
engineer=plans and builds machines, bridges and other things;butcher=sells meat;waiter=serves food in a restaurant
hairdresser=cuts and styles hair;mechanic=repairs cars and machines;sailor=works on a ship;actor=plays roles in films or plays
photographer=takes pictures;beekeeper=looks after bees and collects honey;shepherd=looks after sheep;artist=makes art"""

DEFINITIONS = """a volcano=a mountain that can throw out hot melted rock called lava;rain=water that falls from clouds in small drops
snow=frozen water that falls from clouds as white flakes;a rainbow=a band of colours in the sky when the sun shines on rain
the sun=a big, hot star that gives us light and warmth;the moon=a ball of rock that goes around the Earth
a star=a huge ball of hot, glowing gas far away in space;a planet=a big round body that travels around a star
the Earth=the planet that we live on;an island=land with water all around it;a river=a long stream of water that flows to the sea or a lake
a lake=a large area of water with land around it;the sea=a very large area of salt water;an ocean=a very large sea
a mountain=a very high hill of rock;a desert=a dry place where very little rain falls;a forest=a large area with many trees
a jungle=a thick, warm forest with many plants and animals;a glacier=a slow river of ice;an earthquake=a sudden shaking of the ground
wind=moving air;a cloud=many tiny drops of water floating in the sky;lightning=a bright flash of electricity in the sky
thunder=the loud sound that comes with lightning;fog=a cloud close to the ground;ice=frozen water;steam=water in the form of gas
gravity=the force that pulls things down to the ground;electricity=a kind of energy that makes lamps and machines work
a magnet=a thing that pulls iron towards itself;a telescope=a tool for looking at things far away
a microscope=a tool that makes very small things look big;a thermometer=a tool that shows how hot or cold it is
a compass=a tool with a needle that points north;a map=a drawing that shows where places are;a clock=a machine that shows the time
a calendar=a list of the days and months of a year;a library=a place where you can read and borrow books
a museum=a place where old or interesting things are shown;a school=a place where children learn;a hospital=a place where sick people get help
a bakery=a shop where bread and cakes are made;a bank=a place that keeps money;a farm=a place where food is grown and animals live
a zoo=a place where you can see many animals;a castle=a big, strong house with thick walls where kings and queens lived
a bridge=something built so that people can cross a river or a road;a lighthouse=a tower with a strong light that guides ships
a computer=a machine that works with information and follows programs;a robot=a machine that can do work by itself
the internet=a network that connects computers all over the world;a telephone=a tool for talking to people far away
a bicycle=a vehicle with two wheels that you ride with your feet;a train=a row of wagons that runs on rails
an aeroplane=a machine with wings that flies in the sky;a submarine=a ship that can travel under water
a rocket=a machine that flies into space;a boat=a small ship that travels on water;a mammal=an animal that feeds its babies with milk
an insect=a small animal with six legs;a reptile=an animal with dry, scaly skin, like a snake or a lizard
a bird=an animal with feathers, wings and a beak;a fish=an animal that lives in water and breathes with gills
a dinosaur=a reptile that lived on Earth millions of years ago;a whale=a very big mammal that lives in the sea
a bat=a flying mammal that is active at night;a spider=a small animal with eight legs that often makes webs
a butterfly=an insect with big, colourful wings;a caterpillar=a young butterfly or moth before it gets wings
a bee=an insect that makes honey;an owl=a bird with big eyes that hunts at night;a penguin=a bird that cannot fly but swims very well
a kangaroo=an animal from Australia that jumps and carries its baby in a pouch;a panda=a black and white bear that eats bamboo
a camel=an animal with one or two humps that lives in dry places;a dolphin=a clever sea mammal;an octopus=a sea animal with eight arms
a seed=the small part of a plant from which a new plant grows;a root=the part of a plant that is under the ground and drinks water
a flower=the colourful part of a plant that makes seeds;a fruit=the part of a plant that holds the seeds and is often sweet
a vegetable=a plant or part of a plant that we eat, like a carrot;honey=a sweet food that bees make from nectar
bread=a food made from flour, water and yeast;cheese=a food made from milk;butter=a soft yellow food made from cream
a pancake=a thin, flat cake made in a pan;soup=a warm liquid food made from vegetables, meat or fish;pizza=a flat round bread with tomato and cheese on top
music=sounds that are put together in a beautiful way;a song=music with words;a poem=a short text, often with rhymes
a story=a text that tells what happened to somebody;a book=many pages with words or pictures held together
a dictionary=a book that explains words;a language=the words that people use to speak and write;a joke=a short story that makes people laugh
a riddle=a question that you have to solve like a puzzle;a friend=somebody you like and trust;a family=people who belong together, like parents and children
friendship=a close and good feeling between friends;love=a very strong and warm feeling for somebody;courage=doing the right thing even when you are afraid
honesty=telling the truth;kindness=being good and friendly to others;patience=being able to wait calmly;a dream=the pictures in your mind while you sleep
a week=a time of seven days;a month=a part of the year with about thirty days;a year=a time of twelve months or 365 days
a triangle=a shape with three sides;a square=a shape with four equal sides;a circle=a round shape;a rectangle=a shape with four sides and four right angles
a king=a man who rules a country;a queen=a woman who rules a country or the wife of a king;a doctor=a person who helps sick people
a fairy tale=a story with magic, often about kings, animals or fairies;a language model=a computer program that reads and writes text
a dragon=a big animal in stories that can fly and breathe fire;a unicorn=a horse in stories with one horn on its head
a mermaid=a being in stories, half woman and half fish;money=what we use to buy things;a market=a place where people buy and sell things
winter=the coldest season of the year;summer=the warmest season of the year;spring=the season when plants begin to grow
autumn=the season when the leaves fall;Christmas=a holiday on the 25th of December;a birthday=the day on which somebody was born"""

# question forms | short answer | full sentence
MISC = """How many days are in a week|Seven|A week has seven days
How many months are in a year|Twelve|A year has twelve months
How many days are in a year|365|A year has 365 days, and a leap year has 366
How many hours are in a day|24|A day has 24 hours
How many minutes are in an hour|60|An hour has 60 minutes
How many seconds are in a minute|60|A minute has 60 seconds
How many seasons are there|Four|There are four seasons: spring, summer, autumn and winter
How many weeks are in a year|52|A year has 52 weeks
How many letters are in the English alphabet|26|The English alphabet has 26 letters
How many continents are there|Seven|There are seven continents
How many planets are in the solar system;How many planets are there|Eight|There are eight planets in the solar system
How many fingers do people have;How many fingers do you have on two hands|Ten|People have ten fingers
How many toes do people have|Ten|People have ten toes
How many eyes do people have|Two|People have two eyes
How many wheels does a bicycle have|Two|A bicycle has two wheels
How many wheels does a car have|Four|A car has four wheels
How many wheels does a tricycle have|Three|A tricycle has three wheels
How many sides does a triangle have|Three|A triangle has three sides
How many sides does a square have|Four|A square has four sides
How many sides does a hexagon have|Six|A hexagon has six sides
How many colours are in a rainbow|Seven|A rainbow has seven colours: red, orange, yellow, green, blue, indigo and violet
How many players are in a football team;How many players are on a football team|Eleven|A football team has eleven players
How many strings does a violin have|Four|A violin has four strings
How many strings does a guitar have|Six|A guitar usually has six strings
How many cents are in a dollar|100|There are 100 cents in a dollar
How many metres are in a kilometre|1000|A kilometre has 1000 metres
How many centimetres are in a metre|100|A metre has 100 centimetres
How many grams are in a kilogram|1000|A kilogram has 1000 grams
How many legs does a spider have|Eight|A spider has eight legs
How many teeth do adults have|32|Adults usually have 32 teeth
What is the largest animal;What is the biggest animal in the world|The blue whale|The blue whale is the largest animal in the world
What is the largest land animal;What is the biggest animal on land|The elephant|The African elephant is the largest animal on land
What is the tallest animal|The giraffe|The giraffe is the tallest animal
What is the fastest land animal;What is the fastest animal on land|The cheetah|The cheetah is the fastest animal on land
What is the slowest animal|The sloth|The sloth is one of the slowest animals
What is the largest bird;What is the biggest bird|The ostrich|The ostrich is the largest bird
What is the smallest bird|The hummingbird|The smallest bird is a hummingbird
Which animal is the king of the jungle;Who is the king of the animals|The lion|The lion is called the king of the animals
Which animal has a long neck|The giraffe|The giraffe has a very long neck
Which animal has a trunk;Which animal has a long trunk|The elephant|The elephant has a long trunk
Which animal has black and white stripes|The zebra|The zebra has black and white stripes
Which animal makes honey;Who makes honey|Bees|Bees make honey
Which animal gives us milk;Where does milk come from|The cow|Milk comes from cows
Which animal gives us wool;Where does wool come from|The sheep|Wool comes from sheep
Which animal lays eggs for breakfast;Where do eggs come from|Hens|The eggs that we eat come from hens
Which animal carries its baby in a pouch|The kangaroo|The kangaroo carries its baby in a pouch
Which bird cannot fly|The penguin|The penguin is a bird that cannot fly
Where does bread come from;What is bread made of|Flour|Bread is made from flour, water and yeast
What is cheese made of;What is cheese made from|Milk|Cheese is made from milk
What is wine made of|Grapes|Wine is made from grapes
What is paper made of;What is paper made from|Wood|Paper is made from wood
What is glass made of|Sand|Glass is made from sand
What is the largest country;What is the biggest country in the world|Russia|Russia is the largest country in the world
What is the smallest country in the world|Vatican City|Vatican City is the smallest country in the world
What is the largest ocean;What is the biggest ocean|The Pacific Ocean|The Pacific Ocean is the largest ocean
What is the longest river in the world;What is the longest river|The Nile|The Nile is often called the longest river in the world
What is the highest mountain in the world;What is the tallest mountain|Mount Everest|Mount Everest is the highest mountain in the world
What is the largest desert;What is the biggest hot desert|The Sahara|The Sahara is the largest hot desert in the world
What is the largest continent|Asia|Asia is the largest continent
What is the smallest continent|Australia|Australia is the smallest continent
What is the coldest continent|Antarctica|Antarctica is the coldest continent
What is the largest planet;What is the biggest planet|Jupiter|Jupiter is the largest planet in the solar system
What is the smallest planet|Mercury|Mercury is the smallest planet in the solar system
Which planet is closest to the sun|Mercury|Mercury is the planet closest to the sun
Which planet do we live on;What planet do we live on|Earth|We live on planet Earth
Which planet is known as the red planet;Which planet is red|Mars|Mars is called the red planet
Which planet has rings|Saturn|Saturn is famous for its rings
What is the name of our galaxy|The Milky Way|Our galaxy is called the Milky Way
Who was the first person on the moon;Who was the first man on the moon|Neil Armstrong|Neil Armstrong was the first person on the moon, in 1969
Who wrote Romeo and Juliet;Who wrote Hamlet|William Shakespeare|William Shakespeare wrote it
Who wrote Alice in Wonderland|Lewis Carroll|Lewis Carroll wrote Alice in Wonderland
Who wrote Peter Pan|J. M. Barrie|J. M. Barrie wrote Peter Pan
Who wrote Pinocchio|Carlo Collodi|Carlo Collodi wrote Pinocchio
Who wrote The Jungle Book|Rudyard Kipling|Rudyard Kipling wrote The Jungle Book
Who wrote Treasure Island|Robert Louis Stevenson|Robert Louis Stevenson wrote Treasure Island
Who wrote Moby-Dick|Herman Melville|Herman Melville wrote Moby-Dick
Who wrote The Ugly Duckling;Who wrote The Little Mermaid|Hans Christian Andersen|Hans Christian Andersen wrote it
Who painted the Mona Lisa|Leonardo da Vinci|Leonardo da Vinci painted the Mona Lisa
Who painted Sunflowers;Who painted The Starry Night|Vincent van Gogh|Vincent van Gogh painted it
Who composed the Ninth Symphony;Who wrote Für Elise|Beethoven|Ludwig van Beethoven wrote it
Who invented the telephone|Alexander Graham Bell|Alexander Graham Bell is known for inventing the telephone
Who invented the light bulb|Thomas Edison|Thomas Edison is known for the light bulb
Who invented the printing press|Johannes Gutenberg|Johannes Gutenberg built the first printing press in Europe
Who discovered gravity|Isaac Newton|Isaac Newton described gravity
Who invented the steam engine|James Watt|James Watt made the steam engine much better
Who discovered penicillin|Alexander Fleming|Alexander Fleming discovered penicillin
Who sailed to America in 1492;Who discovered America|Christopher Columbus|Christopher Columbus sailed to America in 1492, where people already lived
Where is the Eiffel Tower|In Paris|The Eiffel Tower is in Paris, France
Where is Big Ben|In London|Big Ben is in London
Where is the Colosseum|In Rome|The Colosseum is in Rome, Italy
Where are the pyramids;Where are the great pyramids|In Egypt|The great pyramids are in Egypt
Where is the Statue of Liberty|In New York|The Statue of Liberty is in New York
Where is the Great Wall|In China|The Great Wall is in China
Where is the Taj Mahal|In India|The Taj Mahal is in India
Where does the sun rise|In the east|The sun rises in the east
Where does the sun set|In the west|The sun sets in the west
What does a caterpillar become;What does a caterpillar turn into|A butterfly|A caterpillar becomes a butterfly
What does a tadpole become|A frog|A tadpole becomes a frog
What do plants need to grow|Water, light and air|Plants need water, light, air and soil to grow
What do bees make|Honey|Bees make honey
What do we use to see|Our eyes|We see with our eyes
What do we use to hear|Our ears|We hear with our ears
What do we use to smell|Our nose|We smell with our nose
What do we use to taste|Our tongue|We taste with our tongue
At what temperature does water boil;When does water boil|At 100 degrees Celsius|Water boils at 100 degrees Celsius
At what temperature does water freeze;When does water freeze|At 0 degrees Celsius|Water freezes at 0 degrees Celsius
What happens when ice gets warm;What happens when ice melts|It becomes water|When ice gets warm, it melts and becomes water
Why is the sky blue|Because air scatters blue light|The sky is blue because the air scatters blue light more than other colours
Why do leaves fall in autumn|To save water|Trees drop their leaves in autumn to save water in the cold season
Why do we sleep|To rest|We sleep so that our body and mind can rest
Why do birds fly south|To find warmth and food|Birds fly south in winter to find warmth and food
Why do we need water|To live|Our body needs water to live and work
Why do we brush our teeth|To keep them healthy|We brush our teeth to keep them clean and healthy
Why is the sea salty|Because of salt from rocks|The sea is salty because rivers carry salt from the rocks into it
What is the first letter of the alphabet|A|The first letter of the alphabet is A
What is the last letter of the alphabet|Z|The last letter of the alphabet is Z
What is the first day of the week|Monday|In many countries, Monday is the first day of the week
What is the first month of the year|January|January is the first month of the year
What is the last month of the year|December|December is the last month of the year
Which month is the shortest;What is the shortest month|February|February is the shortest month
Which season comes after winter|Spring|Spring comes after winter
Which season comes after spring|Summer|Summer comes after spring
Which season comes after summer|Autumn|Autumn comes after summer
Which season comes after autumn|Winter|Winter comes after autumn
Which season is the coldest|Winter|Winter is the coldest season
Which season is the warmest;Which season is the hottest|Summer|Summer is the warmest season
When is Christmas|On December 25|Christmas is on December 25
When is New Year's Day|On January 1|New Year's Day is on January 1
What colour do you get when you mix blue and yellow;What do blue and yellow make|Green|Blue and yellow make green
What colour do you get when you mix red and yellow;What do red and yellow make|Orange|Red and yellow make orange
What colour do you get when you mix red and blue;What do red and blue make|Purple|Red and blue make purple
What colour do you get when you mix black and white;What do black and white make|Grey|Black and white make grey
What colour do you get when you mix red and white|Pink|Red and white make pink
What are the primary colours|Red, yellow and blue|The primary colours are red, yellow and blue
What are the colours of a traffic light|Red, yellow and green|A traffic light has red, yellow and green lights
What does a red traffic light mean|Stop|A red traffic light means that you must stop
What does a green traffic light mean|Go|A green traffic light means that you may go
What do you wear on your feet|Shoes|You wear socks and shoes on your feet
What do you wear on your head|A hat|You can wear a hat or a cap on your head
What do you use when it rains|An umbrella|You can use an umbrella when it rains
What do you use to write|A pen or a pencil|You can write with a pen or a pencil
What do you use to cut paper|Scissors|You can cut paper with scissors
What currency is used in Japan|The yen|The currency of Japan is the yen
What currency is used in France;What currency is used in Germany|The euro|The currency there is the euro
What currency is used in the United Kingdom|The pound|The currency of the United Kingdom is the pound
What currency is used in the United States|The dollar|The currency of the United States is the dollar
What is the chemical formula of water;What is water made of|H2O|Water is H2O: hydrogen and oxygen
What gas do we breathe;What do we need to breathe|Oxygen|We breathe air and need the oxygen in it
What is the hardest natural material|Diamond|Diamond is the hardest natural material
How far is the moon|About 384,000 kilometres|The moon is about 384,000 kilometres away
How old is the Earth|About 4.5 billion years|The Earth is about 4.5 billion years old
What is the speed of light|About 300,000 kilometres per second|Light travels about 300,000 kilometres per second
Is the Earth round;Is the Earth flat|The Earth is round|The Earth is round like a ball
Is the sun a star|Yes|Yes, the sun is a star
Is a whale a fish|No|No, a whale is a mammal
Is a tomato a fruit|Yes|Yes, a tomato is a fruit, but we use it like a vegetable
Can penguins fly|No|No, penguins cannot fly, but they swim very well
Can fish live without water|No|No, fish need water to live
Can dogs talk|No|No, dogs cannot talk, but they bark
Can pigs fly|No|No, pigs cannot fly
Is ice cold|Yes|Yes, ice is cold
Is fire hot|Yes|Yes, fire is hot
Do cats like milk|Yes|Many cats like milk, but water is better for them
Do spiders have eight legs|Yes|Yes, spiders have eight legs
Is the moon bigger than the Earth|No|No, the moon is smaller than the Earth
Is an elephant bigger than a mouse|Yes|Yes, an elephant is much bigger than a mouse
Is a mouse bigger than an elephant|No|No, a mouse is much smaller than an elephant
What animals live in the sea;Which animals live in the sea|Whales, dolphins, sharks and crabs|Whales, dolphins, sharks, crabs and many fish live in the sea
What animals live on a farm;Which animals live on a farm|Cows, pigs, sheep and hens|Cows, pigs, sheep, horses and hens live on a farm
What animals live in the forest;Which animals live in the forest|Foxes, deer, owls and bears|Foxes, deer, owls, squirrels and bears live in the forest
What animals live in Africa;Which animals live in Africa|Lions, elephants, giraffes and zebras|Lions, elephants, giraffes and zebras live in Africa
What animals live in the desert;Which animals live in the desert|Camels, snakes and lizards|Camels, snakes and lizards live in the desert
What animals can fly;Which animals can fly|Birds, bats and many insects|Birds, bats and many insects can fly
What animals lay eggs;Which animals lay eggs|Birds, frogs, turtles and snakes|Birds, frogs, turtles and snakes lay eggs
Do fish swim|Yes|Yes, fish swim in water
Do birds have wings|Yes|Yes, birds have wings"""

GREETINGS = {"hello": {"French": "bonjour", "Spanish": "hola", "German": "hallo", "Italian": "ciao", "Swahili": "jambo",
                       "Portuguese": "olá", "Dutch": "hallo"},
             "thank you": {"French": "merci", "Spanish": "gracias", "German": "danke", "Italian": "grazie",
                           "Swahili": "asante", "Portuguese": "obrigado", "Dutch": "dank je"},
             "goodbye": {"French": "au revoir", "Spanish": "adiós", "German": "auf Wiedersehen", "Italian": "arrivederci"},
             "yes": {"French": "oui", "Spanish": "sí", "German": "ja", "Italian": "sì", "Portuguese": "sim"},
             "no": {"French": "non", "Spanish": "no", "German": "nein", "Italian": "no", "Portuguese": "não"},
             "cat": {"French": "chat", "Spanish": "gato", "German": "Katze", "Italian": "gatto"},
             "dog": {"French": "chien", "Spanish": "perro", "German": "Hund", "Italian": "cane"},
             "house": {"French": "maison", "Spanish": "casa", "German": "Haus", "Italian": "casa"},
             "water": {"French": "eau", "Spanish": "agua", "German": "Wasser", "Italian": "acqua"},
             "friend": {"French": "ami", "Spanish": "amigo", "German": "Freund", "Italian": "amico"}}

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


def table(text):
    return [tuple(e.strip().split("=", 1)) for line in text.splitlines() for e in line.split(";") if e.strip()]


def _cap(s):
    return s[:1].upper() + s[1:]


def _art(n):
    return ("an " if n[0] in "aeiou" and not n.startswith("uni") else "a ") + n


def qa():
    """All facts: list of (list of question forms, short answer, full sentence). No final punctuation."""
    out = []

    def add(questions, short, full):
        out.append((questions, _cap(short), _cap(full)))

    for c, t in table(CAPITALS):
        add(["What is the capital of " + c, "What's the capital of " + c, "Which city is the capital of " + c,
             "Do you know the capital of " + c, "Tell me the capital of " + c, "What is the capital city of " + c,
             "Name the capital of " + c, "capital of " + c], t, "The capital of %s is %s" % (c, t))
        add(["%s is the capital of which country" % t, "Of which country is %s the capital" % t], c,
            "%s is the capital of %s" % (t, c))
    for c, l in table(LANGUAGES):
        add(["What language do people speak in " + c, "Which language is spoken in " + c], l,
            "In %s, people speak %s" % (c, l))
    for c, k in table(CONTINENTS):
        add(["On which continent is " + c, "Which continent is %s in" % c, "Where is " + c], k, "%s is in %s" % (_cap(c), k))
    for t, c in table(COLOURS):
        verb = "are" if t.endswith("ies") else "is"
        add(["What colour %s %s" % (verb, t), "What color %s %s" % (verb, t), "Which colour %s %s" % (verb, t),
             "Tell me the colour of " + t], c, "%s %s %s" % (t, verb, c))
    for a, s in table(SOUNDS):
        add(["What sound does %s make" % _art(a), "What does %s say" % _art(a), "What noise does %s make" % _art(a)], s,
            "%s says \"%s\"" % (_art(a), s) if "-" in s or len(s) < 6 else "%s makes a sound like \"%s\"" % (_art(a), s))
    for a, b in table(BABIES):
        add(["What is a baby %s called" % a, "What do you call a baby %s" % a, "What is the name of a young %s" % a],
            _art(b), "A baby %s is called %s" % (a, _art(b)))
    for a, h in table(HOMES):
        add(["Where does %s live" % _art(a), "Where do you find %s" % _art(a), "Where is the home of %s" % _art(a)], h,
            "%s lives %s" % (_art(a), h))
    for a, f in table(EATS):
        add(["What does %s eat" % _art(a), "What is the food of %s" % _art(a), "What does %s like to eat" % _art(a)], f,
            "%s eats %s" % (_art(a), f))
    for a, n in table(LEGS):
        add(["How many legs does %s have" % _art(a)], n, "%s has %s" % (_art(a), n if " " in n else n + " legs"))
    homes, food, babies = dict(table(HOMES)), dict(table(EATS)), dict(table(BABIES))
    for a in sorted(set(homes) | set(food)):
        parts = ["%s lives %s" % (_cap(_art(a)), homes[a])] if a in homes else []
        parts += ["It eats %s" % food[a]] if a in food and parts else ["%s eats %s" % (_cap(_art(a)), food[a])] if a in food else []
        parts += ["A baby %s is called %s" % (a, _art(babies[a]))] if a in babies else []
        add(["Tell me something about %ss" % a, "What do you know about the %s" % a, "Tell me about the %s" % a,
             "Tell me something about %s" % _art(a), "What do you know about %ss" % a, "Describe %s" % _art(a)], parts[0], ". ".join(parts))
    for a, b in table(OPPOSITES):
        for x, y in ((a, b), (b, a)):
            if x in ("light", "old", "short", "right", "lose", "hard"):
                continue
            add(["What is the opposite of " + x, "What's the opposite of " + x, "Tell me the opposite of " + x,
                 "Opposite of " + x, 'What is the opposite of "%s"' % x], y, 'The opposite of %s is %s' % (x, y))
    for a, b in table(PLURALS):
        add(["What is the plural of " + a, 'What is the plural of "%s"' % a], b, 'The plural of %s is %s' % (a, b))
    for a, b in table(PAST):
        add(["What is the past tense of " + a, 'What is the past of "%s"' % a], b, 'The past tense of %s is %s' % (a, b))
    for a, b in table(RHYMES):
        add(["What rhymes with " + a, "Give me a word that rhymes with " + a, "Which word rhymes with " + a], b,
            '"%s" rhymes with "%s"' % (_cap(b), a))
    for a, b in table(JOBS):
        add(["What does %s do" % _art(a), "What is the job of %s" % _art(a), "What is %s" % _art(a)], b,
            "%s %s" % (_art(a), b))
    for a, b in table(DEFINITIONS):
        add(["What is " + a, "What's " + a, "Explain what %s is" % a, "Can you explain what %s is" % a,
             "Tell me what %s is" % a, "Describe " + a], b, "%s is %s" % (_cap(a), b))
    for line in MISC.splitlines():
        q, short, full = line.split("|")
        add(q.split(";"), short, full)
    for en, row in GREETINGS.items():
        for lang, w in row.items():
            add(["How do you say %s in %s" % (en, lang), 'What is "%s" in %s' % (en, lang),
                 "Translate %s to %s" % (en, lang)], w, 'In %s, "%s" is "%s"' % (lang, en, w))
    for names, what in ((WEEKDAYS, "day"), (MONTHS, "month")):
        n = len(names)
        for i, d in enumerate(names):
            add(["What %s comes after %s" % (what, d), "Which %s comes after %s" % (what, d),
                 "What is the %s after %s" % (what, d)], names[(i + 1) % n],
                "%s comes after %s" % (names[(i + 1) % n], d))
            add(["What %s comes before %s" % (what, d), "Which %s comes before %s" % (what, d),
                 "What is the %s before %s" % (what, d)], names[(i - 1) % n],
                "%s comes before %s" % (names[(i - 1) % n], d))
    return out
