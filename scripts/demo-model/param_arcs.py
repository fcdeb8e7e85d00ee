"""Story arcs with a free part that the request names: "who lost <his> <O>", "who wanted to <V>" and so on.

Further slots: <O> an object, <aO> with its article, <V> something to learn, <Ving> its -ing form, <X> something to be
afraid of, <J> a job with its article, <R> a treat for a feast. Same grammar as story_arcs.py.
"""

LEARN = {"dance": "dancing", "sing": "singing", "paint": "painting", "cook": "cooking", "read": "reading", "write": "writing",
         "skate": "skating", "climb": "climbing", "juggle": "juggling", "whistle": "whistling", "play the drum": "drumming",
         "play the flute": "playing the flute", "ride a bicycle": "riding a bicycle", "bake bread": "baking bread",
         "jump very high": "jumping high", "run fast": "running fast", "build boats": "building boats", "sail": "sailing",
         "tell jokes": "telling jokes", "do magic": "doing magic", "count the stars": "counting stars", "surf": "surfing",
         "fly a kite": "flying a kite", "draw": "drawing", "knit": "knitting", "fish": "fishing", "ski": "skiing",
         "play chess": "playing chess", "speak to birds": "speaking to birds", "make music": "making music", "dive": "diving"}
FEARS = """thunder|spiders|deep water|loud noises|high places|ghosts|the big dog next door|the wind|monsters under the bed|fire
|new places|being alone|the forest|snakes|the doctor|making mistakes|big crowds|the old house|mice|bees""".replace("\n", "").split("|")
DREAM_JOBS = """a pilot|a king|a queen|a singer|a doctor|an astronaut|a pirate|a teacher|a painter|a knight|a chef|a sailor|a clown
|a detective|a dancer|a captain|a firefighter|a wizard|a writer|a football player|a gardener|an explorer""".replace("\n", "").split("|")

PARAM_ARCS = [
    {"want": "lost <his> <O>", "text": """One {sunny|rainy|quiet} day <H> could not find <his> <O>. "Where is my <O>?" {cried|asked} <H>. <He> looked under the bed, behind the door and even in the {soup pot|rain barrel}. The <O> was not there.
<H> went out and met <F> the <f>. "I have lost my <O>," said <H>. "Let us think," said <F>. "Where did you have the <O> last?" <H> thought hard. "{By the river|Under the big tree|At the market}!" <he> said. They ran there as fast as they could.
And there was the <O>, {in the grass|on a bench|behind a stone}, just where <H> had left it. "Thank you, <F>," said <H>. "Next time I will take better care of my <O>." """},
    {"want": "found <aO>", "text": """{One morning|One day} <H> found <aO> {on the road|near the river|under a bush}. "What a fine <O>!" said <H>. "But it is not mine. Somebody must be looking for it."
<H> asked everyone: "Is this your <O>?" The {baker|miller} said no. The {teacher|farmer} said no. At last <he> met <F>, a <f> who {was crying|looked very worried}. "I lost my <O>," said <F>. "Is it this one?" asked <H>. "Yes!" shouted <F> and {jumped for joy|danced around}.
"How can I thank you?" asked <F>. "Just be my friend," said <H>. And from that day on, they {met every afternoon|played together every day}."""},
    {"want": "wanted to <V>", "text": """There was one thing that <H> wanted more than anything: <H> wanted to <V>. But whenever <H> tried, {everything went wrong|it did not work at all}. "Maybe I will never learn to <V>," said <H> sadly.
Then <he> met <F>, an old <f>. "I can show you how to <V>," said <F>, "but you must try every day." So every day they met in the <P>. At first it was very hard. After a week it was a little better. After <N> weeks, <H> {loved <Ving>|was really good at <Ving>}.
One evening everybody came to watch. <H> was nervous, but <F> {smiled|nodded}, and <H> began. How they all clapped! "If you want to <V>," said <H>, "you must begin and not give up." """},
    {"want": "wanted to learn to <V>", "text": """<H> wanted to learn to <V>. "You? Never!" said the others and laughed. That made <H> {sad|very quiet}, but <he> did not give up.
<H> found a teacher: <F> the <f>, who knew all about <Ving>. "Slowly," said <F>. "One step at a time." <H> practised in the morning and in the evening. Sometimes <he> {fell down|made mistakes}. Then <F> said, "Mistakes are how we learn."
When {spring|summer} came, <H> could <V> better than anyone in the <P>. Nobody laughed now. "Will you teach us?" they asked. "Of course," said <H>. "One step at a time." """},
    {"want": "was afraid of <X>", "text": """<H> was brave in many ways, but <he> was afraid of <X>. When the others {talked about|spoke of} <X>, <H> {turned pale|closed <his> eyes}. <He> did not tell anybody.
One day <F> the <f> asked, "Why are you shaking?" "I am afraid of <X>," whispered <H>. <F> did not laugh. "I was afraid of <X> too," said <F>. "Take my hand. We will be brave together."
Step by step, <H> learned to be calm. <He> {took a deep breath|counted to ten}, and <F> stayed close. In the end <H> even {smiled|laughed} a little. "It was not so bad with a friend," <he> said. <H> was still a bit afraid of <X>, but <he> was not alone any more."""},
    {"want": "wanted to be <J>", "text": """"When I grow up, I want to be <J>," said <H>. {Everyone smiled|The others laughed}. "You are just a <h>," they said. But <H> had made up <his> mind.
<He> {read many books|watched and listened} and asked a hundred questions. <F> the <f> helped <him> to practise. They {made a costume out of old clothes|played it every day in the garden}. "Look, I am <J>!" called <H>.
Years went by. <H> worked hard and never stopped dreaming. And one fine morning it was true: <H> was <J>! <F> was the first to {clap|cheer}. "I always knew it," said <F>."""},
    {"want": "made friends with a <f>", "text": """One day <H> met a <f> called <F>. At first they only looked at each other. "You look different from me," said <H>. "And you look different from me," said <F>.
Then it {began to rain|got very cold}. <H> had {a big umbrella|a warm blanket}. "There is room for two," said <H>. So the <h> and the <f> sat close together and told each other stories. <F> knew {funny|exciting} stories, and <H> laughed until <his> tummy hurt.
When the sun came out, they did not want to go home. "We are different," said <F>, "but we laugh about the same things." And that is how the <h> and the <f> became friends."""},
    {"want": "saved a <f>", "text": """One day <H> heard a cry for help. A <f> called <F> had fallen into the {river|deep snow|mud} and could not get out. "Hold on!" shouted <H>. "I am coming!"
<H> was {not very strong|afraid}, but there was no time to think. <He> {threw a long rope|held out a long branch} and pulled and pulled. The rope {slipped|nearly broke}, but <H> did not let go. At last <F> was safe.
<F> was {cold and wet|shaking}, so <H> gave <him2> {a warm blanket|hot soup}. "You saved my life," said <F>. "Friends help each other," said <H>. And they were friends for ever."""},
    {"want": "had <aO>", "text": """<H> had <aO>, and it was no ordinary <O>. Whenever <H> {touched the <O>|held the <O>} and {closed <his> eyes|said a kind word}, something nice happened. Flowers opened. {Birds began to sing|The sun came out}.
A greedy merchant heard about it. "Sell me the <O>!" he said. "I will give you a bag of gold." But <H> shook <his> head. That night the merchant took the <O> and ran away. But for him the <O> did nothing at all, because he {had no kind words|was never kind}.
<F> the <f> followed his tracks and brought the <O> back. "Now I know the secret," said <F>. "It is not the <O> that is magic. It is you, <H>." """},
    {"want": "went to a party", "text": """<H> got a letter: "Come to my party tonight! Your friend <F>." <H> was very happy. But what should <he> bring? <He> had no money for a present.
So <H> {baked|made} <T> and put it in a {basket|box}. On the way to the party it began to {rain|snow}. <H> {slipped|fell}, and the <T> {landed in a puddle|was broken}. When <H> came to the house of <F> the <f>, <he> was {close to tears|very sad}. "I have nothing for you," <he> said.
"You came," said <F>, "and that is all I wanted." They danced and sang until {midnight|the moon was high}. It was the best party of the year."""},
    {"want": "made <aO>", "text": """<H> liked to make things. One day <he> made <aO> out of {wood and paper|old boxes|bits and pieces}. It was a {funny|crooked} little <O>, but <H> was proud of it.
"That is not a real <O>," said the others. <H> went home and {was sad|put it in a corner}. But <F> the <f> asked, "May I see your <O>?" <F> looked at it from all sides. "It is wonderful," said <F>. "Nobody else in the world has <aO> like this one."
The next day <F> asked <H> to make another one, and then everyone wanted <aO> made by <H>. "Made with love is better than made perfect," said <F>."""},
    {"want": "ate too much <R>", "text": """<H> loved <R>. At the big feast there was a mountain of <R>, and <H> ate and ate and ate. "Stop," said <F> the <f>. "That is enough." But <H> did not listen.
Soon <H> had a terrible tummy ache. <He> {lay under a tree|sat on the ground} and groaned. "I will never eat <R> again!" <he> said. <F> brought {some water|a cup of warm tea} and {sat down beside <him>|held <his> hand}.
The next day <H> felt better. "Would you like some <R>?" asked <F>. <H> thought about it. "Just a little," <he> said, and they both laughed."""},
    {"want": "wanted to see the world", "text": """<H> had never been {outside the <P>|far from home}. "I want to see the world," <he> said one day. <He> packed some <T> and {a warm coat|a map} and said goodbye.
<H> saw the wide sea and the white mountains. <He> {sailed on a ship|rode on a train} and slept in a {tent|hay barn}. In a far land <he> met <F>, a <f> who spoke another language. They could not talk, but they {shared some <T>|laughed and sang} together.
After <N> months <H> came home. "How big is the world?" everyone asked. "Very big," said <H>, "but a smile means the same everywhere." """},
    {"want": "found a secret door", "text": """One day <H> found a small door {behind the bookcase|in an old tree|under the stairs}. It was {<C> and very old|no bigger than a plate}. <H> {turned the handle|knocked three times}, and the door opened.
Behind it was a garden where it was always {spring|summer}. <F>, a <f>, was watering the flowers. "I have waited for a visitor for a hundred years," said <F>. "Please stay for tea." They drank tea and ate <T>, and <F> told <him> how the garden began.
When <H> went home, the door {was gone|closed softly}. But in <his> pocket was a small seed. <H> planted it, and a flower from the secret garden grew in front of <his> house."""},
    {"want": "had a strange dream", "text": """One night <H> had a strange dream. In the dream {the moon was made of cheese|it rained soup|the trees could walk}, and <F> the <f> was {the king|riding on a cloud}. "Come along!" called <F>.
They {slid down a rainbow|flew over the <P>} and met a {fish with an umbrella|singing chair}. "What is the answer?" it asked. "The answer to what?" asked <H>. "{Seventeen|Pancakes}!" it shouted, and everybody laughed.
Then <H> woke up. It was morning, and <F> stood at the door. "I dreamed of you," said <H>. "That is funny," said <F>. "I dreamed of you, too. Would you like some {pancakes|soup}?\""""},
]
