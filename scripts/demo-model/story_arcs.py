"""Story arcs in the grammar of textgen.py.

An arc is {"want": phrase that may follow "who ..." in a request, "text": the middle of the story}. Slots:
<H> hero as mentioned ("Pip", "the fox"), <h> the hero's kind ("fox"), <he> <him> <his> pronouns,
<He> capitalised, <F> friend by name, <f> friend's kind, <P> place word ("forest"), <T> a treat, <O> the object,
<C> a colour, <N> a small number word. HERO_ARCS need only a hero; OBJECT_ARCS tell of <O>; PLACE_ARCS of <L>.
"""

HERO_ARCS = [
    {"want": "lost <his> hat", "text": """{One windy day|One morning}, the wind {took|blew away} <H>'s <C> hat. "My hat!" {cried|shouted} <H>. <He> ran after it {through|across} the <P>, but the hat flew higher and higher.
<H> met a <f> called <F>. "Have you seen my hat?" asked <H>. "{Yes|I think so}," said <F>. "It is {on top of that tree|in the tall grass|in the bushes by the stream}." {Together they|The two of them} {went to look|walked there}. And there it was! <F> {picked it up|pulled it out} and gave it back.
"Thank you, <F>!" said <H>. <He> put the hat on and {smiled|laughed}. From that day on, <H> {held <his> hat with both hands|tied <his> hat with a ribbon} when the wind blew."""},
    {"want": "was afraid of the dark", "text": """<H> had one secret: <he> was afraid of the dark. Every night <he> {kept a candle burning|hid under the blanket} and {listened to every sound|could not sleep}.
One night the light went out. <H> {began to shake|held <his> breath}. Then <he> heard a soft voice. It was a <f> called <F>. "Do not be afraid," said <F>. "Come outside and look up." <H> {took a deep breath|was very brave} and went outside. The sky was full of stars, {bright as diamonds|like tiny lamps}.
"The dark is not bad," said <F>. "Without it, we could not see the stars." <H> {looked for a long time|smiled}. After that night, the dark was not so scary any more."""},
    {"want": "got lost in the <P>", "text": """{One day|One afternoon} <H> went {for a walk|to pick berries} in the <P>. <He> walked and walked, and when <he> looked around, <he> did not know the way home. "Oh no, I am lost!" said <H>.
<He> sat down on a {stone|log} and {felt very small|wanted to cry}. Then a <f> came by. "My name is <F>," said the <f>. "Why are you so sad?" "I cannot find my way home," said <H>. "{Follow me|Come with me}," said <F>. "I know every {path|tree} here."
They walked {past the old oak|over the little bridge|along the stream} until <H> saw the light of <his> home. "Thank you, <F>!" said <H>. "Please stay for {dinner|supper}." And so <H> found the way home and a new friend."""},
    {"want": "wanted to fly", "text": """<H> had a dream. <He> wanted to fly {like the birds|high above the clouds}. {Every day|Each morning} <he> jumped from {a small rock|a hay bale|the garden wall}, and {each time|every time} <he> fell into the {grass|hay}. {The others|Everyone} laughed.
But a <f> called <F> did not laugh. "Let us build {a big kite|a balloon|wings of paper}," said <F>. They {worked|cut and tied and glued} for <N> days. Then they climbed the hill and waited for the wind.
The wind came. Up, up, up went <H>! <He> could see the whole <P> below. "I am flying!" {shouted|called} <H>. When <he> came down again, <he> hugged <F>. "Dreams need a friend," said <H>."""},
    {"want": "wanted to learn to swim", "text": """<H> lived near a {lake|pond}, but <he> could not swim. All the others jumped into the water and had fun, and <H> {only watched|sat on the bank}.
"Will you teach me?" <H> asked a <f> called <F>. "Of course," said <F>. "First, put your feet in." The water was {cold|cool}, and <H> wanted to run away. But <he> stayed. The next day <he> went in up to <his> knees. The day after that, <he> {learned to float|kicked and splashed}.
After <N> days, <H> {swam all the way across|could swim from one side to the other}. "You did it!" shouted <F>. <H> was {wet|tired} and very proud. "I was afraid," <he> said, "but I did not give up." """},
    {"want": "could not sleep", "text": """One night <H> could not sleep. <He> {turned to the left and to the right|counted a hundred sheep}, but <his> eyes stayed open.
<He> got up and went to see <F> the <f>. "I cannot sleep," said <H>. "{Drink some warm milk|Eat a little <T>}," said <F>. <H> did, but <he> was still awake. "Then let me {sing you a song|tell you a story}," said <F>. <F> {sang softly|spoke in a quiet voice} about the moon, the stars and the sleeping <P>.
Before the {song|story} was over, <H> was fast asleep. <F> {put a blanket over <him>|smiled} and whispered, "Good night, <H>." """},
    {"want": "found a treasure map", "text": """One day <H> found an old map {under the floor|in a bottle|inside an old book}. There was a red cross on it. "A treasure!" said <H>. <He> asked a <f> called <F> to come along.
They {crossed the river|climbed over the hills}, went through a dark cave and counted <N> steps from a {tall|crooked} tree. There they began to dig. Soon they {hit something hard|heard a clunk}. It was a {wooden|small iron} chest!
Inside there was no gold. There {was a letter|were a letter and two cups}. It said: "The real treasure is the friend who came with you." <H> looked at <F>, and they both began to laugh. "That is true," said <H>, and they {went home happily|shared some <T> on the way home}."""},
    {"want": "had no friends", "text": """<H> was lonely. <He> had no friends to play with. <He> {watched the others|looked out of the window} and {sighed|felt sad}.
One day <H> {baked|made} <T> and put a sign outside: "Come and eat with me!" At first nobody came. Then a shy <f> {knocked on the door|came near}. "My name is <F>," said the <f>. "I am new here and I have no friends." "Then we are the same!" said <H>.
They ate, they {told jokes|played games} and they laughed until {the sun went down|it was dark}. "Will you come again tomorrow?" asked <H>. "Yes," said <F>, "and every day after that." And <H> was never lonely again."""},
    {"want": "helped a stranger", "text": """One {cold|rainy} evening there was a knock at the door. Outside stood an old <f> who was {wet and tired|shaking with cold}. "Please, may I come in?" asked the <f>. <H> did not have much, but <he> gave the <f> a warm place by the fire and {half of|all} <his> <T>.
In the morning the <f> was gone. On the table lay a {small golden key|shining stone}. A note said: "You were kind when nobody was looking. Thank you. Your friend, <F>."
<H> {kept it|put it in a safe place} all <his> life. And whenever somebody knocked at the door, <H> {opened it with a smile|said, "Come in!"}"""},
    {"want": "wanted to win the race", "text": """Every year there was a big race in the <P>. <H> wanted to win it more than anything. <He> {ran every morning|practised every day}, in the sun and in the rain.
On the day of the race, <H> ran {as fast as the wind|faster than ever}. Soon <he> was in front. But then <he> heard a cry. <F> the <f> had fallen and hurt {a leg|a foot}. <H> looked at the finish line, and then <he> looked back. <He> turned around and helped <F> to get up.
They crossed the line together, last of all. But everyone {cheered|clapped} for them louder than for the winner. "You lost the race," said <F>, "but you won a friend." And <H> was happy."""},
    {"want": "told a lie", "text": """One day <H> {broke a window|ate the whole <T>|broke a pretty cup}. "Who did this?" everyone asked. <H> was afraid and told a lie. "It was <F> the <f>," <he> said. So <F> {was sent home|had to clean up}, and <F> was very sad.
That night <H> had {a bad feeling in <his> tummy|no rest}. The lie felt {heavy like a stone|bigger and bigger}. In the morning <he> went to everyone and said, "I lied. It was me. I am sorry, <F>."
It was quiet for a moment. Then <F> smiled. "It was brave to tell the truth," said <F>. "I forgive you." <H> felt light again, and <he> {never told a lie like that again|always told the truth after that}."""},
    {"want": "was always hungry", "text": """<H> was always hungry. <He> ate {breakfast twice|five meals a day}, and still <he> wanted more. One day <he> smelled <T>. It came from the house of <F>, a <f>.
<H> {climbed through the window|opened the door very quietly} and ate it all. But then <he> was so {round|full} that <he> could not get out again! <F> came home and saw <H>. "You ate my <T>!" said <F>. "I am sorry," said <H>. "I did not ask."
<F> had to laugh. "Next time, just knock," said <F>. They waited until <H> was thin enough to get out. Then <H> made new <T>, and they ate it together, half for each."""},
    {"want": "found a baby bird", "text": """One spring morning <H> found a baby bird under a tree. It had fallen out of its nest. "Poor little one," said <H>. The nest was very high up.
<H> tried to climb, but the {tree was too tall|branches were too thin}. So <he> called <F> the <f>. <F> stood at the bottom, <H> climbed on top, and very, very slowly they lifted the baby bird up to its nest.
The mother bird {sang with joy|sang her best song}. From then on, the birds woke <H> every morning with a song. It was the nicest thank-you in the world."""},
    {"want": "saved the village", "text": """One night {it rained and rained|a big storm came}. <H> {woke up|looked out of the window} and saw that the river was rising. "The water will come into the village!" thought <H>.
<He> ran from door to door. "Wake up! Wake up!" <he> shouted. <F> the <f> rang the big bell. Everyone came out with {bags of sand|stones and wood}, and they built a wall. They worked all night long.
In the morning the rain stopped, and the village was safe. "You saved us, <H>!" the people said. <H> {turned red|smiled}. "We did it together," <he> said."""},
    {"want": "wanted to touch the moon", "text": """Every night <H> looked at the moon. "It is so {round and bright|beautiful}," <he> said. "I want to touch it."
So <H> climbed the highest {hill|tree}. But the moon was still far away. <He> {built a long ladder|stood on a tower of boxes}, but it was not long enough. Then <F> the <f> came by. "Come with me," said <F>. They went to the lake. There, on the quiet water, lay the moon, {round and silver|shining like a coin}.
<H> put out a hand and touched it. The moon {danced|broke into a hundred little lights} and then was round again. "I touched the moon!" said <H>. And that night <he> slept better than ever."""},
    {"want": "wanted to be big", "text": """<H> did not like to be small. "I want to be big {and strong|like the others}," <he> said. <He> {ate a lot|stretched every morning}, but <he> did not grow.
One day there was a loud cry. <F> the <f> had dropped a key into a {deep crack|small hole}. "I cannot get into my house!" said <F>. The big ones tried, but their hands were too {big|wide}. Then <H> came. <He> {slipped|crawled} into the hole and came out with the key.
"Hooray for <H>!" everyone shouted. <H> {stood very tall|felt as tall as a tree}. "Maybe small is just right," <he> said."""},
    {"want": "had a magic wish", "text": """One day <H> {helped a little fish back into the water|freed a small bird from a net}. The {little creature|tiny animal} could speak! "You were good to me," it said. "You may have one wish."
<H> thought about {gold|a palace}, and <he> thought about <T>. Then <he> saw <F> the <f>, who was ill and {lay in bed|could not play}. "I wish that <F> gets well," said <H>.
{There was a bright light|A warm wind blew}, and <F> {jumped up|was well again}! The two friends danced {in the sun|all day}. "You could have wished for anything," said <F>. "I did," said <H>, "and this was the best wish." """},
    {"want": "planted a seed", "text": """In spring <H> planted a tiny seed. "Grow!" said <H>. <He> waited all day, but nothing happened. "Seeds need time," said <F> the <f>. "Give it water and sun."
Every day <H> gave it water. <He> {sang to it|pulled out the weeds}. After <N> days a small green leaf came up. Week after week the plant grew. By summer it was {taller than <H>|as tall as the house}, and it had <C> flowers.
In autumn there was fruit for everyone. <H> {gave the first one to <F>|shared it with <F>}. "You were right," said <H>. "Good things take time." """},
    {"want": "learned to share", "text": """<H> had the biggest {basket|bag} of {nuts|berries|apples} in the whole <P>. "They are all mine," <he> said, and <he> did not give {anything to anyone|away even one}.
Then winter came. <F> the <f> {had nothing left to eat|was cold and hungry}. <H> looked at <his> food, and then <he> looked at <F>. It did not taste so good any more. "Come in," said <H> at last. "There is enough for two."
They ate together by the fire and told stories. The food was soon half gone, but <H> had never been so happy. "Now I know," said <H>. "Shared food tastes best." """},
    {"want": "went on a long journey", "text": """One day <H> {packed a small bag|put bread and cheese in a bag} and went out to see the world. <He> {crossed a wide river|walked over high hills}, slept under the stars and {saw many wonderful things|met many kind people}.
On the way <he> met <F>, a <f> with a {broken cart|sore foot}. <H> stopped and helped. "Where are you going?" asked <F>. "I do not know," said <H>. "I am looking for the best place in the world." So they went on together.
They saw {golden cities|tall towers} and {blue seas|white mountains}. But one evening <H> said, "I miss my home." They turned back. And when <H> opened <his> own door, <he> said, "Here it is, the best place in the world." """},
    {"want": "was very shy", "text": """<H> was so shy that <he> {never spoke|hid when somebody came}. But when <he> was alone, <he> sang {beautiful songs|like a bird}.
One day <F> the <f> heard <him>. "What a lovely voice!" said <F>. "Please sing at our feast." <H> shook <his> head. "I cannot. Everyone will look at me." "Then look only at me," said <F>.
On the evening of the feast, <H> looked only at <F> and began to sing. {It became very quiet|Everybody listened}. When the song was over, they all clapped and {cheered|threw flowers}. <H> smiled. It was not so hard after all."""},
    {"want": "was the best at cooking", "text": """Nobody could cook like <H>. <His> <T> was famous in the whole <P>. One day the king heard about it. "Bring me <H>!" he said.
<H> was nervous. <He> cooked all day, but {the salt fell into the pot|the fire went out}. "Oh no!" cried <H>. <F> the <f> helped. "Start again," said <F>. "Cook it as you do at home, with love." So <H> made simple <T>, just like at home.
The king tasted it. He {closed his eyes|was silent}. "This tastes like my grandmother's kitchen," he said {with a tear in his eye|softly}. And he gave <H> a golden spoon."""},
    {"want": "met a dragon", "text": """One day <H> heard a loud noise {from a cave|behind the hill}. There sat a <C> dragon, and it was crying big hot tears. Everyone else ran away, but <H> stayed. "What is wrong?" <he> asked.
"I have a {thorn in my foot|toothache}," said the dragon, "and nobody helps me because they are afraid of me." <H> was afraid too, but <he> {went closer|was brave}. {Gently|Very carefully}, <he> pulled it out. "Oh, that is better!" said the dragon.
The dragon's name was <F>. From then on, <F> warmed the houses in winter with fire, and <H> flew through the clouds on the dragon's back."""},
    {"want": "made a big mess", "text": """One day <H> wanted to {bake a cake all alone. <He> took flour and eggs and milk|paint a picture all alone. <He> took red and blue and yellow paint}. Soon it was on the table, on the floor and even on the ceiling! What a mess!
<F> the <f> came in and {slipped|stopped in surprise}. "What happened here?" asked <F>. <H> looked at <his> {feet|hands}. "I wanted to make a surprise for you," <he> said. "Today is your birthday."
<F> began to laugh. "Then let us clean up together and make it again together." And that is what they did. It was the best birthday ever."""},
    {"want": "found a lost child", "text": """One evening <H> heard somebody crying in the <P>. It was a small <f>. "I am <F>," said the little one. "I cannot find my mother."
<H> gave <F> {a warm scarf|some <T>} and said, "Do not worry. We will find her." They {called|looked} behind every tree. They asked the {owl|wind} and the {moon|stars}. At last they heard a voice: "<F>! <F>! Where are you?"
The mother {ran to them|came running} and held <F> tight. "How can I thank you?" she asked. "Your smile is enough," said <H>, and <he> went home with a warm heart."""},
    {"want": "had a bad day", "text": """It was a bad day for <H>. First <he> {fell out of bed|put on two different shoes}. Then <he> {spilled the milk|burned the toast}. And then it began to rain. "Today everything goes wrong!" said <H>.
<He> sat under a tree and made an angry face. <F> the <f> came along. "May I sit with you?" asked <F>. They sat and watched the rain. <F> jumped into a puddle. Splash! <H> {could not help smiling|began to laugh} and jumped too. Splash, splash!
They {jumped into every puddle|played} until the sun came out. "Look, a rainbow!" said <H>. And the bad day became a good day."""},
    {"want": "wanted to stop the rain", "text": """It rained for <N> days, and <H> could not go out to play. "Stop, rain!" shouted <H>, but the rain did not listen.
<H> went to see <F>, a wise old <f>. "How can I stop the rain?" <he> asked. <F> smiled. "The rain fills the river. It wakes the flowers. It gives us water to drink. Do you really want to stop it?" <H> thought about that.
"No," <he> said. "But what can I do today?" "We can {make paper boats|read a book}," said <F>. So they did. And when the sun came back, the whole <P> was green and full of flowers."""},
    {"want": "went to school for the first time", "text": """Today was the first day of school for <H>. <He> put {a pencil and an apple|a new book} into <his> bag. <His> heart went boom, boom, boom. "What if nobody likes me?" <he> thought.
In the classroom <H> sat down in the last row. Next to <him> sat a <f>. "I am <F>," said the <f> quietly. "I am a bit scared." "Me too," said <H>. They both smiled, and {suddenly|all at once} it was not so scary.
They learned to {count to ten|write their names} and sang a song. When the bell rang, <H> said, "Is it over already?" And <he> could not wait for the next day."""},
    {"want": "gave the best present", "text": """It was <F>'s birthday. <F> was a <f>, and everyone brought a present: a {golden cup|big cake}, a {silk scarf|shiny ball}, a box of {chocolate|sweets}. But <H> had no money at all.
<H> thought {all night|for a long time}. Then <he> had an idea. <He> {collected the prettiest leaves|drew a picture} and wrote on it: "For <F>: I will be your friend for ever."
<F> opened all the presents. When <F> read what <H> had written, {there were tears in <F>'s eyes|<F> hugged <him>}. "This is the best present of all," said <F>. And it hung over the bed for many years."""},
    {"want": "was too proud", "text": """<H> thought that <he> was the {fastest|strongest|cleverest} in the whole <P>. "Nobody is as good as I am!" <he> said every day. The others {were tired of it|did not like to hear it}.
One day <H> {fell into a deep hole|got stuck in the mud}. <He> pulled and pushed, but <he> could not get out. Then little <F>, a <f>, came by. "You are too small to help me," said <H>. But <F> brought a long {rope|branch} and called the others. They all pulled together, and out came <H>!
<H> was ashamed. "Thank you," <he> said. "Alone I was not strong at all." From then on <H> {did not boast any more|was kind to everyone, big or small}."""},
    {"want": "heard a strange noise", "text": """One night <H> heard a strange noise. {Knock, knock, knock!|Tap, tap, tap!|Scratch, scratch!} "Who is there?" asked <H>. Nobody answered. {Knock, knock, knock!|Tap, tap, tap!} There it was again.
<H> took a lamp and {went to look|opened the door very slowly}. Was it a ghost? Was it a monster? No! It was <F>, a little <f>, who {was knocking on the window|had got stuck behind the door}. "I {saw your light|was cold}," said <F>, "and I wanted to say hello."
<H> laughed. "I thought you were a monster!" <he> said. "Come in and have some <T>." So they sat together, and the night was not strange at all."""},
    {"want": "built a house", "text": """<H> wanted to build a house. "I will build it quickly," <he> said, and <he> made it out of {leaves|straw}. But in the night the wind came. Whoosh! The house was gone.
"Build it with me," said <F> the <f>. "Slowly, and with strong wood." They {carried|cut} wood for <N> days. They made a door, two windows and a <C> roof. The wind came again. It {blew and blew|pushed and pulled}, but the house did not move.
<H> and <F> sat inside, warm and dry, and ate <T>. "Slow work is good work," said <F>, and <H> {nodded|agreed}."""},
]

OBJECT_ARCS = [
    """{One day|One morning|Last summer}, <H> found <aO> {in the attic|under a tree|on the beach|at the market|behind the house}. It was {old and dusty|small and <C>|the prettiest <O> in the world}. "Whose <O> is this?" <H> {asked|wondered}. Nobody knew.
<H> took the <O> home and {cleaned it|looked at it carefully}. That night the <O> began to {shine|hum|glow softly}. "Thank you for {finding|keeping} me," said the <O> in a quiet voice. "I can give you one wish." <H> thought for a long time. "I wish for {a friend|somebody to play with}," <he> said.
The next day <F> the <f> moved in next door. They became best friends, and they always kept the <O> {on the table|in a safe place} between them.""",
    """<H> loved <his> <O> more than anything. <He> took the <O> {everywhere|to bed, to school and to the park}. But one day the <O> was gone! <H> looked {under the bed|in every room} and {behind the door|in the garden}. No <O>.
"I will help you," said <F> the <f>. They {followed small tracks in the mud|asked everyone they met}. At last they came to {an old tree|a little cave}. There sat a small {bird|mouse|squirrel} with the <O>. "I am sorry," it said. "It was so beautiful. I only wanted to {look at|hold} it."
<H> was not angry any more. "You can visit me and see the <O> every day," <he> said. And so <H> got the <O> back and made a new friend.""",
    """There was once <aO> that nobody wanted. It stood {in the window of an old shop|in a dusty corner}, and {people walked past it|nobody looked at it} year after year. "Am I not good enough?" thought the <O>.
Then one {rainy|snowy} day, <H> came in. <He> saw the <O> and {stopped|smiled}. "This is just what I was looking for!" said <H>. <He> paid with <N> small coins and carried the <O> home.
<H> {cleaned it and gave it a special place|showed it to <F> the <f>}. From then on, the <O> was used {every day|with love}. "I waited so long," thought the <O>, "but now I am home.\"""",
    """<H> wanted to make <aO> all by <him>self. <He> {worked|tried} all morning. But the first <O> was {crooked|too big}, and the second <O> broke {in two|into pieces}. "I will never do it," said <H> sadly.
<F> the <f> came to look. "I made <N> bad ones before I made a good one," said <F>. "Try once more, and go slowly." So <H> tried again. <He> {measured|worked} carefully and did not hurry. And at the end of the day there it was: a beautiful <C> <O>!
<H> {held it up|showed it to everyone}. "It is not perfect," <he> said, "but it is mine." And <F> said, "It is the best <O> I have ever seen.\"""",
    """One day <H>'s <O> broke. {Crack!|Snap!} <H> was so sad. "Throw it away," said the others. "Buy a new <O>." But <H> did not want a new one. <His> grandmother had given <him> this <O>.
So <H> {went|walked} to <F>, an old <f> who could mend things. <F> {put on a pair of glasses|looked at the <O> from all sides}. "Hmm," said <F>. "It needs {a little glue|a drop of gold}, some time and a lot of love." They worked together {until the evening|for <N> hours}.
Then the <O> was whole again. There was a thin line where it had been broken. "That line is not ugly," said <F>. "It shows that somebody cared." And <H> loved the <O> even more than before.""",
    """<H> had a {lovely|very special} <C> <O>. One day <he> met <F>, a <f> who had nothing at all. <F> looked at the <O> with big eyes. "What a wonderful <O>!" said <F>.
<H> held the <O> tight. It was <his> favourite thing. But that night <he> kept thinking about <F>. In the morning <he> {wrapped the <O> in paper|put a ribbon around the <O>} and {ran|walked} to <F>. "This is for you," <he> said.
<F> {could not speak|danced with joy}. "Now it is our <O>," said <F>. "We can share it." And <H> learned that giving feels even better than having.""",
    """{In the middle of the night|One quiet evening} <H> heard a tiny voice. "Help! Help!" It came from the {kitchen|garden|old box}. <H> went to look and found <aO>. The <O> could talk!
"I am a magic <O>," it said. "A {grumpy|forgetful} wizard left me here. Please take me home." <H> put the <O> into <his> bag and called <F> the <f>. They {walked through the <P>|crossed the <P>}, and the <O> told them where to go: left, right, and up the hill.
The wizard was so happy that he {cried|danced}. "My <O>! I missed you!" he said. He gave <H> and <F> {a bag of stars|hot chocolate and cake}, and the <O> {winked|waved goodbye}.""",
    """The old king had <aO>, and he said, "Whoever can tell me what this <O> is really for shall be my guest." The {rich|clever} men said, "It is for {selling|showing}." The soldiers said, "It is for {keeping|guarding}." The king shook his head.
Then came <H>, a poor {child|traveller}. <He> looked at the <O> and said, "I think <aO> is for sharing." <He> {gave it to <F> the <f>, who was sad|put it where everyone could enjoy it}. <F> smiled for the first time that day.
The king {stood up|laughed with joy}. "That is the right answer!" he said. And <H> and <F> sat at the king's table that night, with the <O> in the middle.""",
]

PLACE_ARCS = [
    """<H> had always dreamed of <L>. "What is it like?" <he> asked everyone. One day <his> {grandfather|uncle|aunt} said, "Come, I will show you <L>."
They got up {early|before the sun}. <H> took <T> and a warm jacket. When <he> saw <L> for the first time, <he> {could not speak|stood very still}. It was {more beautiful than any picture|bigger than <he> had thought}. A <f> called <F> came near. "Is this your first time?" asked <F>. "Let me show you my favourite spot."
They {played|looked around} until the evening. "I will never forget <L>," said <H> on the way home, and that night <he> dreamed of it again.""",
    """{Nobody|No one} liked to talk about <L>. "Strange things happen there," people said. But <H> was curious. "I want to know the truth about <L>," <he> said.
With {a lamp|a rope and a lamp} in <his> hand, <H> set out. <His> friend <F> the <f> came along. They heard {a whisper|strange music}. They saw {a light|a shadow}. <F> wanted to run away, but <H> said, "Wait!" It was only {an old owl|a family of mice} making a party.
<H> and <F> {laughed|danced with them}. The next day <H> told everyone the truth: "Do not be afraid of <L>. It is full of friends." """,
    """<H> thought about <L> all day long. <He> {drew pictures of <L>|sang songs about <L>} and {asked a hundred questions about it|could not think of anything else}. <F> the <f> said, "Why do you love <L> so much?"
"Because <L> {makes me feel free|makes me happy when I am sad|is different every time}," said <H>. "Come with me, and you will see." So they went together. <H> showed <F> {the small things|how to be quiet and listen}. They heard {the wind|a bird}, and they saw {a tiny <C> flower|something shine}.
"Now I understand," said <F>. They stayed until {the first star|the moon} came out. And from that day on, <L> belonged to both of them.""",
    """One day <H> woke up and something was wrong. It had to do with <L>. Everything was {quiet|grey}, and {nobody|no bird} sang. "We must do something for <L>," said <H>.
<He> asked <F> the <f> for help. {Together they|The two friends} {cleaned|worked|swept and washed} for <N> days. Others saw it and came to help: first two, then ten, then the whole village. They {sang|laughed} while they worked.
In the end, everything about <L> was {bright|shining} again. The birds came back. "When many hands help," said <F>, "even big work is small." """,
    """"Where shall we go today?" asked <F> the <f>. "Let us go and see about <L>," said <H>. So they packed <T> and set off.
On the way they {met an old man|saw a big sign|heard a funny song}. "What do you know about <L>?" asked <H>. "{A lot|More than you think}," came the answer. "{Be patient and keep your eyes open|Listen well and you will learn something}." The two friends {kept their eyes open|listened well}, and soon <L> did not seem so {strange|far away} any more.
In the evening they sat on a hill. "What was the best thing about <L>?" asked <F>. <H> thought for a moment. "That we were there together," <he> said.""",
    """<H>'s grandmother knew everything about <L>. "Tell me about <L>," said <H> every evening. And grandmother told {old|funny} stories about <L>, until <H> fell asleep.
One {night|evening} <F> the <f> came to visit. "Let us {draw it|build it out of wood and paper}!" said <F>. They worked for <N> days, and at last they were done. "It is just like in the stories," whispered <H>, "only more beautiful."
In the morning <H> ran to grandmother. "Now I have a story about <L> for you!" <he> said. And this time grandmother listened.""",
    """<H> wrote a letter: "Dear <F>, please come and visit me. I want to show you something about <L>." <F> the <f> came the very next day.
"Close your eyes," said <H>. "Think of <L>. What do you hear? What do you smell?" <F> stood very still. "I hear {the wind|music|laughter}," said <F>. "I smell {flowers|salt and sunshine|fresh bread}." "That is why I love it so much," said <H>.
They spent the whole day there. They {collected small treasures|made a picture of it|sang a song about it}, and they ate <T>. "Next year again?" asked <F>. "Next year again," said <H>.""",
]
