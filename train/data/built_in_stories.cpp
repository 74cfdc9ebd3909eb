// The text of the built-in stories; story_grammar.h explains the notation.

#include "train/data/story_grammar.h"

namespace xtrain {
namespace {

// How a story begins. The trait decides what kind of story it will be.
constexpr const char* kBeginnings = R"(
story: [opening] [flavor] \n [trait.plot] \n \n

opening: Once upon a time there was a/an [trait:trait] [being].
  | Once upon a time, in the village of [hamlet_front][hamlet_back], there lived a/an [trait:trait] [being].
  | Long ago, when [olden], there was a/an [trait:trait] [being].
  | This is the story of a/an [trait:trait] [being].
  | Far away, beyond the [beyond], there lived a/an [trait:trait] [being].
  | In a/an [dwelling] near [hamlet_front][hamlet_back] lived a/an [trait:trait] [being].
being: little girl named [hero:girl] | little boy named [hero:boy] | young [creature] named [hero:pet]
flavor: <hero> lived with <hero.their> [relative], who could [skill].
  | <hero> loved to [hobby] more than anything.
  | <hero> always wore a/an [color] [garment].
  | Everyone knew <hero>, because nobody could [skill] so well.
  | For breakfast <hero.they> liked [dish], and for supper [treat].
  | Every [weekday] <hero.they> would [hobby].

lost_trait {plot=lost}: careless | forgetful | dreamy | hasty | absent-minded | scatterbrained
grow_trait {plot=grow}: gentle | patient | hopeful | thoughtful | green-fingered | steady
fear_trait {plot=fear}: shy | timid | nervous | jumpy | easily frightened | wide-eyed
race_trait {plot=race}: proud | boastful | speedy | bouncy | vain | swift-footed
share_trait {plot=share}: hungry | plump | well-fed | round-cheeked | munching | picnic-loving
craft_trait {plot=craft}: clever | handy | busy | inventive | stubborn | nimble-fingered
bake_trait {plot=bake}: cheerful | merry | generous | warm-hearted | flour-dusted | jolly
roam_trait {plot=roam}: curious | adventurous | bold | restless | nosy | daring
friend_trait {plot=friend}: lonely | quiet | bashful | lonesome | friendly | soft-spoken
sleep_trait {plot=sleep}: sleepless | wide-awake | lively | wriggly | fidgety | night-loving
warning_trait {plot=warning}: headstrong | breezy | know-it-all | sunny | muddy | carefree
wish_trait {plot=wish}: greedy | dissatisfied | wishful | fanciful | starry-eyed | grumbling
trait: @lost_trait | @grow_trait | @fear_trait | @race_trait | @share_trait | @craft_trait | @bake_trait
  | @roam_trait | @friend_trait | @sleep_trait | @warning_trait | @wish_trait
)";

constexpr const char* kPlots = R"(
# A thing is lost. Where it fell decides who can fetch it, how, and what the helper likes to eat.
lost: [lost_start] But <hero> was so busy [watching] that the <toy> fell [spot:spot]. \n [lost_ask] [lost_rescue] [lost_end]
lost_start: One [weather] [daypart] <hero> took <hero.their> [look] [toy:toy] to the [place:place].
  | <hero> had a/an [look] [toy:toy], a gift from <hero.their> [relative]. One [daypart] <hero.they> carried it to the [place:place].
  | "May I take my [toy:toy] to the [place:place]?" asked <hero>. "Only if you look after it," said <hero.their> [relative].
watching: watching a/an [color] butterfly | humming a tune | counting clouds | chasing a/an [color] leaf
  | talking to a/an [bug] | skipping over puddles | thinking about [treat] | looking at a/an [color] feather
wet_spot {who=swimmer; state=dripping wet}: into the pond | into the stream | between the lily pads
  | off the old bridge | into the fountain | down the waterfall
high_spot {who=flier; state=covered in leaves}: onto the roof of the mill | onto a tall chimney | over a high wall
  | onto a steep cliff | onto a cloud-high ledge | into a crow's nest
deep_spot {who=digger; state=full of sand}: down a rabbit hole | under the roots of a willow | into a sandy pit
  | beneath a heap of earth | through a crack in the ground | under a pile of stones
narrow_spot {who=tiny; state=a little dusty}: behind a loose brick | into a thorny hedge | under the floorboards
  | inside a hollow log | between two rocks | through the fence
spot: @wet_spot | @high_spot | @deep_spot | @narrow_spot
lost_ask: <hero> sat down and cried. "What is the matter?" asked a/an [manner] [helper:spot.who].
  | "Oh no, my <toy>!" cried <hero>. A/an [manner] [helper:spot.who] heard <hero.them> and hurried over.
  | <hero> tried and tried, but <hero.they> could not get it back. Then a/an [manner] [helper:spot.who] came by.
  | "Help!" called <hero>. Only a/an [manner] [helper:spot.who] was near. "What did you lose?" it asked.
lost_rescue: "My <toy> fell <spot>," said <hero>. The <helper> <helper.does> and came back with the <toy>.
  | When it heard about the <toy>, the <helper> <helper.does>, and there it was, <spot.state>!
  | "I know just what to do," said the <helper>. It <helper.does>. Soon <hero> had the <toy> again, <spot.state> but safe.
lost_end: <hero> gave the <helper> [helper.food] to say thank you. From then on <hero.they> kept the <toy> [safe].
  | "You are a true friend," said <hero>, and shared [helper.food] with the <helper>. After that <hero.they> always looked after the <toy>.
  | They ate [helper.food] together and played with the <toy> until [dusk]. <hero> was never so <trait> again.
safe: in a/an [color] box | tied to <hero.their> wrist | deep in a pocket | on the highest shelf | under <hero.their> pillow

# A seed is planted. Care or neglect decides what becomes of it.
grow: [grow_start] <hero> dug a hole [garden_spot] and covered the seed with soft earth. \n [grow_care]
grow_start: In the spring <hero.their> [relative] gave <hero.them> a single [plant:plant] seed.
  | One [weather] [daypart] <hero> found a/an [plant:plant] seed in an old [garment].
  | Out of the sky came a/an [manner] [flier] and dropped a/an [plant:plant] seed.
  | At the market <hero> traded a/an [color] button for a/an [plant:plant] seed.
garden_spot: behind the house | beside the well | next to the gate | by the sunny wall | near the henhouse | under the window
grow_care: Every morning <hero.they> watered it and [tended]. First came a green shoot, then [number] leaves, and by [season] there were [number_many] <plant.many>! [grow_good]
  | But soon <hero> wanted to [hobby], and forgot the seed. When <hero.they> came back, the little plant was [droopy]. [grow_bad]
tended: sang it a song | pulled out the weeds | told it a story | chased the snails away | gave it a kind word | built it a little fence
droopy: brown and dry | bent to the ground | thin and yellow | almost gone | as limp as a noodle | hanging its head
grow_good: <hero> made <plant.dish> and invited the whole street. "Patience has a sweet taste," said <hero.their> [relative].
  | <hero.They> gave half of them to the [neighbor], who cooked <plant.dish> for everyone.
  | The [neighbor] came to look and said, "You have earned every one." That night they all ate <plant.dish>.
grow_bad: "I am sorry," whispered <hero>, and ran for water. <hero.They> stayed beside it for [number_many] days until it stood up again. In [season] it bore just one <plant>, but it was the best <plant> in the world.
  | "Plants get thirsty too," said the [neighbor]. From that day <hero> watered it at sunrise, and in the end there were [number] small <plant.many>.
  | <hero> cried over it, and the tears were water enough. It lived! There was no <plant.dish> that year, but <hero.they> never forgot again.

# A noise in the night. What the noise is decides what it was and what is done about it.
fear: [fear_start] It was a [noise:noise] sound, and it came from the [room:room]. \n [fear_guess] But <hero> [brave], took a/an [light], and tiptoed to the <room>. [fear_found] [fear_end]
fear_start: One [gloomy] night <hero> woke up. | In the middle of the night something stirred.
  | The clock struck [hour]. Then <hero> heard it. | The candle was out when <hero> sat up in bed.
noise: scratching {cause=a hungry mouse; fix=gave it a crumb of cheese} | tapping {cause=a branch at the window; fix=tied the branch back with string}
  | dripping {cause=a leaky tap; fix=turned it tight} | hooting {cause=a lost baby owl; fix=opened the window so that it could fly home}
  | rustling {cause=a hedgehog in the leaves; fix=brought it a saucer of water} | creaking {cause=a door in the draft; fix=closed it gently}
  | buzzing {cause=a bee in a jar; fix=set it free} | rattling {cause=a loose shutter; fix=fastened the hook}
  | snoring {cause=an old dog asleep on the rug; fix=covered it with a blanket} | humming {cause=a kettle on the warm stove; fix=made a cup of cocoa}
  | squeaking {cause=a bat that had lost its way; fix=showed it the open door} | thumping {cause=a rabbit dancing on the step; fix=danced along}
fear_guess: "It must be a/an [monster:monster]!" thought <hero>. | "Go away, [monster:monster]!" whispered <hero> from under the blanket.
  | Was it a/an [monster:monster]? <hero>'s knees shook. | Everybody knows that a/an [monster:monster] comes at night.
brave: took a deep breath | counted to [number_many] | thought of <hero.their> [relative] | put on a/an [color] [garment] | hummed a brave song
light: lantern | candle | torch | lamp | jar of fireflies
fear_found: There was no <monster> at all. It was only <noise.cause>! | And what was it? Not a/an <monster>, but <noise.cause>!
  | Something moved, and <hero> began to laugh. The <monster> was nothing but <noise.cause>!
fear_end: <hero> <noise.fix> and went back to bed. In the morning <hero.they> was not so <trait> any more.
  | <hero.They> <noise.fix>. "Things are small when you look at them," said <hero>, and slept until [morning].
  | So <hero.they> <noise.fix>, and after that a/an <noise> sound was only a/an <noise> sound.

# A race. Stopping to rest loses it; stopping to help loses it too, but wins something better.
race: "Nobody is faster than I am," said <hero> [race_to]. "Then race me to the [goal:goal]," said a/an [slow_look] [rival:slow]. Everyone [laughed]. \n [race_run]
race_to: to everyone | to the whole school | at the market | every single day | from the top of a barrel
laughed: laughed | giggled | stared | gasped | came to watch | clapped
race_run: <hero> ran far ahead and [lazed]. [race_nap] \n [race_lost]
  | <hero> was nearly at the <goal> when a cry came from behind. The <rival> [stuck]! <hero> looked at the <goal>, then turned around and [freed] the <rival>. \n [race_kind]
lazed: lay down under a/an [tree] tree | had a taste of [treat] | sat down to comb <hero.their> hair | stopped to [hobby]
race_nap: Soon <hero.they> was fast asleep. | "There is plenty of time," <hero.they> said. | <hero.They> did not look back even once.
race_lost: Step by step the <rival> went past. When <hero> came to the <goal>, the <rival> was already there, eating [treat]. "Slow and steady is fast enough," it said.
  | The <rival> never stopped. It touched the <goal> first, and <hero>'s cheeks turned red. <hero> never boasted again.
  | When the crowd cheered, it was not for <hero>. "Well run," <hero.they> told the <rival>, and meant it.
stuck: had fallen into the mud | was caught in a bramble | had tumbled into a ditch | had lost a shoe in the bog
freed: pulled out | rescued | lifted up | saved
race_kind: They crossed the line together. "You lost the race but won a friend," said the [neighbor].
  | Nobody won, and nobody minded. The <rival> shared [treat] with <hero>, and they raced again the next [weekday].
  | "You could have won," said the <rival>. "I did," said <hero>, and smiled.

# Food is shared or not. What is given comes back.
share: <hero> sat [picnic_spot] with a basket of [food:food]. Along came a/an [poor_look] [guest:guest]. "[share_plea]" it asked. \n [share_choice]
picnic_spot: on a mossy stone | under a/an [tree] tree | on the river bank | in the tall grass | at the crossroads | on top of a hill
share_plea: May I have some? | Could you spare a bite? | Is there enough for two? | Would you share with me? | What smells so good?
share_choice: "Of course," said <hero>, and gave the <guest> the biggest piece. [share_yes]
  | "No, it is all mine," said <hero>, and ate every bit of the <food>. [share_no]
  | <hero> counted the <food>. There was just enough for two, so <hero.they> [divided]. [share_yes]
divided: split it fairly | moved over to make room | laid out two napkins | filled two cups as well
share_yes: On the way home [trouble:trouble]. But the <guest> had not forgotten. It <trouble.rescue>. "One good turn deserves another," it said.
  | A week later [trouble:trouble]. Who came running? The <guest>! It <trouble.rescue>, and they were friends for ever.
share_no: On the way home [trouble:trouble]. <hero> called for help, but no one came for a long, long time. The next day <hero.they> found the <guest> and brought it [treat]. "I am sorry," said <hero>.
  | Then [trouble:trouble], and <hero> was all alone. At last the <guest> came anyway and <trouble.rescue>. <hero> was ashamed, and from then on <hero.they> always packed enough for two.
trouble: <hero> fell into a hole {rescue=let down a long vine} | a thick fog rolled in {rescue=led the way with a bell}
  | the bridge broke {rescue=pushed a log across the water} | <hero>'s foot was caught in a root {rescue=gnawed the root in two}
  | the cart lost a wheel {rescue=rolled the wheel back up the hill} | night fell early {rescue=held up a glowing mushroom}
  | the gate was locked {rescue=squeezed through and lifted the latch} | a big wind took <hero>'s hat {rescue=caught it in the air}

# Something is made. It fails in its own way, and the right craftsman knows why.
craft: <hero> wanted to make a/an [craft:handmade] for <hero.their> [relative:relative]. <hero.They> found <craft.from> and worked [work_time]. But when it was done, <craft.fails>. \n [craft_feel] Then <hero> went to see the <craft.master>. "[craft_advice]" said the <craft.master>. "Now <craft.hint>." \n [craft_end]
work_time: all morning | until the candle burned low | for three whole days | with both sleeves rolled up | without stopping for lunch
handmade: kite {from=paper and string; fails=it would not fly; master=sailmaker; hint=give it a longer tail; works=it soared above the roofs}
  | birdhouse {from=boards and nails; fails=the roof fell off; master=carpenter; hint=use glue as well; works=a family of wrens moved in}
  | scarf {from=a ball of wool; fails=it was full of holes; master=weaver; hint=count every stitch; works=it kept out the coldest wind}
  | toy boat {from=bark and a twig; fails=it tipped over; master=boatman; hint=put a stone in the bottom; works=it sailed across the pond}
  | drum {from=a bucket and a cloth; fails=it made no sound; master=bandmaster; hint=stretch the skin tight; works=it boomed like thunder}
  | lantern {from=tin and glass; fails=the flame went out; master=tinsmith; hint=leave a hole for the air; works=it shone like a star}
  | flute {from=a hollow reed; fails=it only hissed; master=piper; hint=cut the edge thin; works=it sang like a lark}
  | chair {from=three legs and a plank; fails=it wobbled; master=joiner; hint=make the legs the same; works=it stood as firm as a rock}
  | pot {from=a lump of clay; fails=it cracked; master=potter; hint=let it dry slowly; works=it held water without a leak}
  | quilt {from=scraps of cloth; fails=it came apart; master=seamstress; hint=sew each seam twice; works=it was warmer than a hen}
  | basket {from=willow twigs; fails=the bottom dropped out; master=basket maker; hint=soak the twigs first; works=it carried forty apples}
  | windmill {from=sticks and a page of newspaper; fails=it would not turn; master=miller; hint=bend the blades a little; works=it spun all day long}
craft_feel: <hero> stamped <hero.their> foot. | "I give up," sighed <hero>. | <hero> hid it under the bed. | Two big tears rolled down <hero>'s cheeks.
  | <hero> kicked a pebble across the yard.
craft_advice: I made the same mistake once, | Try again tomorrow, | There is nothing wrong with trying twice, | Every master was a beginner,
craft_end: <hero> tried again, and this time <craft.works>. "It is the finest <craft> I ever had," said <hero.their> <relative>.
  | <hero> tried once more. And look, <craft.works>! <hero.Their> <relative> hugged <hero.them> so hard that they both laughed.
  | The second <craft> was crooked, but <craft.works>. <hero.Their> <relative> kept it for [number_many] years.

# A cake lacks something. Whoever has it asks for a favor first.
bake: It was the birthday of <hero>'s [relative:relative], and <hero> wanted to bake a/an [cake]. [bake_lack] So <hero.they> went to the <lack.giver>. \n "I will give you some <lack>," said the <lack.giver>, "if you <lack.favor>." [bake_do] \n [bake_end]
bake_lack: But there was no [lack:lack] in the house. | Oh dear, the [lack:lack] was all gone. | But who had used up the [lack:lack]?
  | But the jar of [lack:lack] was empty.
lack: flour {giver=miller; favor=sweep my floor; did=swept the floor} | honey {giver=beekeeper; favor=plant some clover; did=planted the clover}
  | milk {giver=dairymaid; favor=brush my cow; did=brushed the cow} | butter {giver=farmer; favor=turn the churn; did=turned the churn}
  | sugar {giver=grocer; favor=carry these sacks; did=carried the sacks} | salt {giver=fisherman; favor=mend my net; did=mended the net}
  | cinnamon {giver=sailor; favor=feed my parrot; did=fed the parrot} | cream {giver=goatherd; favor=find my smallest goat; did=found the smallest goat}
  | chocolate {giver=candy maker; favor=stir the big pot; did=stirred the big pot} | jam {giver=gardener; favor=pick the plums; did=picked the plums}
  | vanilla {giver=traveler; favor=polish my boots; did=polished the boots} | yeast {giver=baker; favor=count my loaves; did=counted the loaves}
bake_do: <hero> <lack.did> and hurried home with the <lack>. | <hero> <lack.did>, though it took until [dusk]. Then the <lack> was <hero.theirs>.
  | It was hard work, but <hero> <lack.did> with a smile.
bake_end: The cake came out [cake_look], and everyone said it tasted of kindness. | The kitchen smelled of <lack>, and the <relative> ate [number] slices.
  | "Who helped you?" asked the <relative>. "The <lack.giver>," said <hero>, so they saved the <lack.giver> a big piece.
  | They lit [number_many] candles and sang. The best present of all was the one made with <lack> and love.
cake_look: golden and tall | a little lopsided | as light as a cloud | burned on one side | round as the moon | bigger than the plate

# A walk into the unknown. Having marked the way decides how one gets home.
roam: [roam_start] deep into the [wild:wild]. [roam_care]
roam_start: One [weather] [daypart] <hero> followed a/an [lure:lure] | <hero> saw a/an [lure:lure] and ran after it | "Where does that [lure:lure] go?" wondered <hero>, and followed it
roam_care: On the way <hero.they> dropped [marker:marker] behind <hero.them>. \n [roam_far] But <hero> only had to look for the <marker>. One by one they led <hero.them> [home_way]. [roam_wise]
  | <hero.They> did not look back even once. \n [roam_far] "Which way is home?" <hero.they> cried. At last a/an [manner] [guide:guide] [led] <hero.them> [home_way]. [roam_sorry]
roam_far: Soon the <lure> was gone and every path looked the same. | Then the <lure> vanished, and it began to grow dark.
  | In the end the <lure> turned out to be [lure_end], and all around it was strange and still.
lure_end: a trick of the light | much too quick | a dream | nothing special
home_way: straight to <hero.their> own front door | over the hill and home again | out into the sunshine | back to <hero.their> [relative]
led: led | guided | carried | brought | showed the way and took
roam_wise: "You were <trait>, but you were careful too," said <hero.their> [relative]. | That night <hero> drew a map of the <wild>.
  | <hero.They> put one of the <marker> in a jar, to remember.
roam_sorry: "Next time I will mark the way," <hero.they> promised the <guide>. | <hero> gave the <guide> [treat], and never again went into the <wild> alone.
  | "Thank you," said <hero>. The <guide> winked and was gone.

# Two lonely ones and a game.
friend: <hero> was new in [hamlet_front][hamlet_back], and nobody [noticed]. At the [place:place] <hero.they> saw a/an [manner] [pal:pal] [alone]. \n [friend_ask] [friend_game] \n [friend_end]
noticed: said hello | asked <hero.their> name | sat next to <hero.them> | waved back | knew what to say
alone: sitting all alone | drawing lines in the sand | tossing a pebble up and down | eating lunch alone | looking at the ground
friend_ask: "Do you want to play [game:game]?" asked <hero>, very quietly. | <hero>'s heart beat fast. "I know how to play [game:game]," <hero.they> said.
  | "Nobody will play [game:game] with me," said the <pal>. "I will," said <hero>. | "One cannot play [game:game] alone," said <hero>. "But two can."
friend_game: They played <game> until <game.mishap>, and both of them laughed. | At first neither was any good, and <game.mishap>. It was the best game of <game> ever.
  | First the <pal> won, then <hero> won, and then <game.mishap>.
game: hide-and-seek {mishap=they both hid and no one looked} | tag {mishap=they ran into each other} | leapfrog {mishap=they rolled into a haystack}
  | marbles {mishap=the biggest marble rolled down a drain} | hopscotch {mishap=the rain washed the squares away} | catch {mishap=the ball landed in a birdbath}
  | checkers {mishap=a hen ate the last piece} | tug-of-war {mishap=the rope broke} | follow-the-leader {mishap=they forgot who the leader was}
  | jump rope {mishap=they were tied up in a knot} | blindman's buff {mishap=they caught a scarecrow} | dominoes {mishap=the whole row fell down}
friend_end: "Same time tomorrow?" asked the <pal>. And so it was, every day until [season]. | Soon others came to join in, and nobody at the <place> sat alone.
  | From that day there were two names carved on the bench at the <place>. | <hero> was still <trait>, but now <hero.they> was <trait> together with a friend.

# What is counted in the evening is dreamed of at night.
sleep: The [moon] moon was up, but <hero> could not sleep. [sleep_try] Still <hero.their> eyes were wide open. \n [sleep_advice] <hero> closed <hero.their> eyes. One <sheep.one>, two <sheep>, three <sheep>... \n [sleep_end]
sleep_try: <hero.They> drank [drink]. | <hero.They> turned the pillow over. | <hero.They> listened to the [night_sound]. | <hero.They> tried to lie on <hero.their> [side].
side: left side | right side | back | tummy
sleep_advice: "Count [sheep:sheep]," said <hero.their> [relative]. | At the window a/an [manner] moth whispered, "I always count [sheep:sheep]."
  | So <hero.they> began to count [sheep:sheep]. | "Have you tried [sheep:sheep]?" asked <hero.their> old teddy bear.
sheep: sheep {one=sheep; dream=a meadow of wool} | ducks {one=duck; dream=a warm pond} | clouds {one=cloud; dream=a castle in the sky}
  | trains {one=train; dream=a journey through the hills} | whales {one=whale; dream=the deep blue sea} | stars {one=star; dream=a boat on the Milky Way}
  | pancakes {one=pancake; dream=breakfast in a palace} | camels {one=camel; dream=a desert full of tents} | snowflakes {one=snowflake; dream=a sleigh ride}
  | kangaroos {one=kangaroo; dream=jumping over the moon} | teacups {one=teacup; dream=a party with the queen} | penguins {one=penguin; dream=an island of ice}
sleep_end: At number [number_many] <hero.they> was fast asleep and dreamed of <sheep.dream>.
  | Nobody knows how many there were, for <hero> was already dreaming of <sheep.dream>. Good night, <hero>.
  | All night long <hero.they> dreamed of <sheep.dream>, and in the morning <hero.they> told <hero.their> [relative] all about it.

# A warning is heeded or not.
warning: "Take your [gear:gear]," said <hero.their> [relative:relative]. "It is going to <gear.sky>." \n [warning_choice]
gear: umbrella {sky=rain; came=the rain came down in buckets; dry=stayed perfectly dry; wet=was soaked to the skin}
  | woolly hat {sky=snow; came=big snowflakes filled the air; dry=had the warmest ears in town; wet=had ears as red as cherries}
  | mittens {sky=freeze; came=the puddles turned to ice; dry=built a fine snowman; wet=could not feel a single finger}
  | raincoat {sky=pour; came=the sky turned black and opened; dry=splashed in every puddle; wet=shivered like a jelly}
  | straw hat {sky=be hot; came=the sun burned like an oven; dry=sat in the shade of the brim; wet=had a nose like a tomato}
  | lantern {sky=be foggy; came=a gray fog hid the road; dry=walked home in a circle of light; wet=walked straight into a hedge}
  | rubber boots {sky=flood; came=the stream ran over the road; dry=waded across like a heron; wet=lost both shoes in the mud}
  | scarf {sky=blow; came=an icy wind began to howl; dry=was as snug as a bug; wet=sneezed all the way home}
warning_choice: "Yes," said <hero>, and took the <gear> along to the [place:place]. [warning_jeer] At noon <gear.came>. <hero> <gear.dry>. [warning_wise]
  | "Nonsense," said <hero>, and left the <gear> on the hook. <hero.They> was at the [place:place] when <gear.came>. <hero> <gear.wet>. [warning_fool]
warning_jeer: "Why the <gear>?" laughed a/an [creature]. | The sky was as blue as could be. | <hero> felt silly and nearly turned back.
  | Not a single cloud was in sight.
warning_wise: On the way home <hero> met a/an [creature] in trouble, and they shared the <gear>. | "How did you know?" <hero.they> asked at home. "My knee told me," said the <relative>.
  | Now nobody laughed at the <gear> any more.
warning_fool: At home the <relative> said nothing, but put [drink] on the table. | "Tomorrow I will listen," said <hero>, and sneezed [number] times.
  | The next day the <gear> went everywhere with <hero>, even to bed.

# A wish comes true, with what belongs to it.
wish: One [daypart] <hero> [found] a/an [look] [magic:magic]. Out came a/an [manner] [spirit:spirit]. "You have one wish," it said. "I wish for [wish:wonder]," said <hero> at once. \n And there it was! But soon <wish.trouble>. [wish_feel] \n [wish_end]
found: dug up | fished out | tripped over | dusted off | opened | shook
wonder: a mountain of candy {trouble=the ants came marching in} | a house made of gold {trouble=it was too heavy and sank into the ground}
  | wings {trouble=the geese wanted to take them all flying south} | a hundred kittens {trouble=there was no place left to sit}
  | snow in summer {trouble=the bees went back to bed} | a pet dragon {trouble=it set the curtains on fire}
  | endless holidays {trouble=there was nobody left to bake the bread} | the loudest voice in the land {trouble=every window broke}
  | the longest hair in the world {trouble=it was caught in the door} | a magic pot of soup {trouble=the soup ran down the street}
  | feet as fast as the wind {trouble=they would not stop at home} | a crown with forty jewels {trouble=it gave a terrible headache}
wish_feel: "This is not what I meant," said <hero>. | <hero> did not know whether to laugh or cry. | The [neighbor] came to complain.
  | <hero.Their> [relative] shook a wise head.
wish_end: "Please take back [wished]," said <hero>. The <spirit> smiled and went back into the <magic>. <hero> looked around and liked everything just as it was.
  | Luckily the <spirit> was kind and undid it all. <hero> buried the <magic> [garden_spot] and asked for nothing but [treat].
  | The <spirit> only shrugged. So <hero> worked for [number_many] days to put things right, and was happier than any wish could make <hero.them>.
wished: the wish | my foolish wish | it all
)";

// Who there is.
constexpr const char* kCharacters = R"(
girl {they=she; them=her; their=her; theirs=hers} ~: Lily | Mia | Emma | Anna | Lucy | Rosie | Ella | Clara | Nora | Ivy | Ruby | Daisy | Alice
  | Molly | Sophie | Grace | Hazel | Poppy | Zoe | Maya | Lena | Ada | Nina | Tessa | Greta | Wendy | Flora | Matilda | Elsie
  | Josie | Penny | Freya | Ingrid | Heidi | Leila | Amina | Priya | Yuki | Mei | Carmen | Lucia | Bianca | Odette | Celeste
  | Harriet | Beatrice | Winnie | Tilly | Dora | Edith | Frida | Gwen | Isla | June | Kiki | Lottie | Mabel | Nell | Olive | Pearl
boy {they=he; them=him; their=his; theirs=his} ~: Tom | Ben | Max | Sam | Leo | Jack | Noah | Finn | Oscar | Theo | Hugo | Felix | Henry
  | Oliver | Peter | Jonas | Emil | Anton | Luca | Milo | Otto | Paul | Simon | Tim | Victor | Walter | Arthur | Bruno | Casper
  | David | Edgar | Frank | George | Hans | Ivan | Jasper | Karim | Liam | Mateo | Nico | Omar | Pablo | Quentin | Rafael | Stefan
  | Toby | Ulrich | Vincent | Willem | Xavier | Yusuf | Zack | Albert | Barnaby | Caleb | Dexter | Ethan | Gilbert | Harvey | Ned
pet {they=he; them=him; their=his; theirs=his} ~: Pip | Bramble | Nibbles | Button | Rusty | Barley | Pepper | Thistle | Waffle | Fidget
  | Muffin | Acorn | Scamper | Tumble | Whiskers | Biscuit | Pumpkin | Twig | Mumbles | Copper | Snuffle | Ziggy | Bumble | Crumpet
  | Pickle | Sprout | Puddle | Domino | Fluff | Gizmo | Hobnob | Jingle | Marmalade | Noodle | Pebbles | Radish | Tinker | Wobble
creature ~: fox | rabbit | bear | mouse | hedgehog | squirrel | badger | deer | kitten | puppy | lamb | piglet | pony | goat | donkey
  | raccoon | hamster | panda | koala | tiger | lion | elephant | monkey | giraffe | zebra | wolf | weasel | skunk | llama | chipmunk
swimmer {does=dived to the bottom; food=water_food} ~: frog | otter | duck | beaver | trout | swan | turtle | newt | seal | pelican | salmon | dolphin
flier {does=flew up with a flap of wings; food=bird_food} ~: sparrow | robin | crow | pigeon | owl | magpie | swallow | stork | jackdaw | finch | eagle | parrot
digger {does=dug and dug and dug; food=digger_food} ~: mole | rabbit | badger | terrier | gopher | armadillo | marmot | vole | wombat | meerkat | aardvark | groundhog
tiny {does=crept inside; food=tiny_food} ~: mouse | shrew | lizard | beetle | ladybug | cricket | snail | dormouse | gecko | ant | spider | weevil
slow ~: tortoise | snail | sloth | hedgehog | toad | old donkey | goose | hippo | walrus | caterpillar | ox | duckling
guest ~: squirrel | badger | beaver | rat | raccoon | otter | marten | goat | crow | hare | stray dog | porcupine
guide ~: owl | deer | fox | firefly | ferryman | shepherd | woodcutter | wolf | postman | old woman | hermit | wild goose
pal ~: hare | mole | boy | girl | fox | goat | duckling | hedgehog | pony | bear cub | lizard | calf | foal | kid | hamster | tomcat
bug ~: beetle | ladybug | snail | cricket | bee | ant | grasshopper | worm | dragonfly | moth | centipede | glowworm
monster ~: dragon | ghost | giant | troll | ogre | goblin | witch | wolf | pirate | vampire | kraken | yeti | gnome king | bogeyman | griffin | mummy
spirit ~: genie | fairy | sprite | elf | imp | pixie | leprechaun | mermaid | wizard | phoenix | dwarf | nymph
relative ~: mother | father | grandmother | grandfather | aunt | uncle | sister | brother | cousin | godmother | nanny | great-aunt
neighbor ~: baker | teacher | mayor | blacksmith | postman | doctor | tailor | shoemaker | farmer | librarian | milkmaid | cook | painter
  | fiddler | watchmaker | nurse | barber | butcher | gardener | innkeeper | lighthouse keeper | clown | judge | florist | plumber | captain
manner ~: kind | friendly | wise | tiny | cheerful | shy | funny | polite | plump | sleepy | gray | busy | freckled | sly | fluffy | gruff
  | silver | whistling | elderly | spotted | lame | solemn | tidy | lop-eared | rosy | chattering | dignified | ragged | elegant | bearded | cross-eyed | puzzled
poor_look ~: hungry | thin | tired | ragged | wet | limping | shivering | lonely | scruffy | weary | bony | homeless
slow_look ~: slow | little | wrinkled | calm | fat | muddy | smiling | quiet | dusty | drowsy | sturdy | humble
)";

// What there is, and where.
constexpr const char* kThings = R"(
toy ~: ball | kite | doll | drum | whistle | teddy bear | boat | top | hoop | balloon | marble | puppet | trumpet | yo-yo | rocking horse
  | music box | spyglass | hat | ring | bell | crown | medal | ribbon | locket | compass | penknife | pinwheel | tambourine | harmonica | magnet | seashell | telescope
magic ~: lamp | bottle | teapot | ring | mirror | jewelry box | lantern | acorn | shell | coin | kettle | key | goblet | clock | trunk | pipe | vase | egg
look ~: red | shiny | old | little | blue | wooden | golden | striped | round | painted | green | silver | dented | beautiful | yellow | strange
  | tiny | purple | carved | sparkling | dusty | spotted | crooked | polished | brass | checkered | velvet | faded | scratched | enormous | tin | glittering
color ~: red | blue | green | yellow | white | purple | orange | pink | brown | black | gray | golden | silver | scarlet | turquoise | crimson
  | violet | lilac | emerald | maroon | lavender | amber | ivory | indigo
garment ~: hat | coat | scarf | sweater | cap | cloak | apron | jacket | waistcoat | bonnet | ribbon | shirt | skirt | collar | cape | vest
  | shawl | beret | nightcap | pinafore | tunic | bow tie | robe | kerchief
place ~: park | beach | river | market | playground | lake | school | farm | pond | harbor | fair | castle | mill | seaside | bandstand | crossroads
  | orchard | zoo | library | station | bakery | museum | churchyard | vineyard | quarry | circus | theater | lighthouse | canal
  | town square | fountain | boathouse
wild ~: forest | woods | hills | caves | marsh | jungle | mountains | valley | desert | moor | canyon | swamp | dunes | thicket | heath | labyrinth
goal ~: old oak | church door | bridge | mill | river | well | lighthouse | scarecrow | big rock | town hall | windmill | signpost
  | haystack | barn | chapel | lamppost
room ~: kitchen | attic | cellar | pantry | hallway | closet | garden shed | barn | porch | chimney corner | laundry room | stable | workshop
  | loft | woodshed | staircase
dwelling ~: house | cottage | castle | hut | tree house | windmill | burrow | tent | farmhouse | houseboat | cabin | tower | wagon | barn
  | lighthouse | cave | palace | mansion | igloo | bakery
lure ~: butterfly | rainbow | trail of footprints | rolling hoop | firefly | white deer | strange tune | dragonfly | paper boat | red balloon
  | bluebird | marching band | shooting star | spotted mushroom ring | smell of pancakes | runaway hat
marker ~: pebbles | crumbs | beads | buttons | acorns | white shells | feathers | petals | chestnuts | bits of yarn | corks | beans
  | paper stars | pine cones | peppercorns | blue ribbons
food ~: apples | buns | sandwiches | cookies | pears | cherries | dumplings | pies | muffins | pretzels | nuts | plums | waffles | rolls
  | figs | biscuits | peaches | sausages | carrots | tarts | doughnuts | scones | grapes | radishes | berries | pancakes
treat ~: warm soup | honey cake | apple pie | a ripe pear | cheese toast | gingerbread | a bowl of cherries | roasted chestnuts | cherry tart
  | peppermint candy | pumpkin bread | strawberry jam | a slice of melon | rice pudding | a juicy plum | buttered corn | hazelnut cookies
  | lemon sherbet | baked potatoes | marzipan | raspberry ice | nougat | toffee | blackberry crumble
dish ~: porridge | pancakes | toast | scrambled eggs | oatmeal | waffles | yogurt | muesli | cornflakes | fruit salad | bread and butter
  | rice cakes | french toast | a boiled egg | dumplings | noodles | fried mushrooms | stewed prunes | a banana | cold pizza
drink ~: warm milk | cocoa | a glass of water | peppermint tea | apple juice | hot lemonade | chamomile tea | ginger tea | broth | elderberry punch
cake ~: chocolate cake | cherry pie | plum cake | carrot cake | lemon tart | honey loaf | apple strudel | nut cake | sponge cake | layer cake
  | poppy seed roll | cheesecake | blueberry pie | almond cake | raisin bun | cream puff
water_food: fresh watercress | a bag of shrimps | crunchy pondweed | a pile of snails
bird_food: sunflower seeds | bread crumbs | a ripe berry | a handful of corn
digger_food: crisp carrots | a bunch of clover | sweet potatoes | juicy turnips
tiny_food: a crumb of cheese | a drop of honey | cake crumbs | a grain of rice
plant ~: pumpkin {many=pumpkins; dish=pumpkin soup} | tomato {many=tomatoes; dish=tomato stew} | strawberry {many=strawberries; dish=strawberry jam}
  | bean {many=beans; dish=bean soup} | melon {many=melons; dish=melon salad} | carrot {many=carrots; dish=carrot cake}
  | raspberry {many=raspberries; dish=raspberry tart} | pea {many=peas; dish=pea soup} | cucumber {many=cucumbers; dish=cucumber sandwiches}
  | apple {many=apples; dish=apple pie} | pepper {many=peppers; dish=stuffed peppers} | cherry {many=cherries; dish=cherry pie}
  | onion {many=onions; dish=onion rings} | turnip {many=turnips; dish=turnip mash} | cabbage {many=cabbages; dish=cabbage rolls}
  | gooseberry {many=gooseberries; dish=gooseberry fool} | rhubarb {many=rhubarb stalks; dish=rhubarb crumble} | lemon {many=lemons; dish=lemonade}
tree ~: oak | apple | pear | birch | willow | maple | pine | cherry | chestnut | linden | walnut | elm | poplar | cedar | fig | hawthorn
)";

// What one does, and when.
constexpr const char* kDoings = R"(
hobby ~: paint pictures | climb trees | sing songs | read books | catch frogs | ride a bicycle | build sand castles | pick flowers | swim in the lake
  | play the fiddle | collect stamps | bake cookies | dance in the rain | feed the ducks | look at the stars | whistle | slide down the hill
  | draw maps | write poems | row a boat | press leaves | fly kites | juggle onions | stack stones | tell riddles | polish spoons | fold paper hats
  | roll in the hay | skip rope | hunt for fossils | watch trains | walk on stilts | gather shells | blow bubbles | practice cartwheels | invent new words
  | spy on snails | listen to the radio | ride the carousel | solve puzzles
skill ~: whistle | bake bread | tell stories | knit socks | play chess | catch fish | repair clocks | sing lullabies | imitate birds | jump
  | tame horses | carve wood | read the clouds | balance a spoon | yodel | make shadow puppets | tie knots | walk on both hands | peel potatoes | guess riddles
  | sharpen pencils | find mushrooms | speak to owls | hiccup | remember names | wiggle both ears | dance a polka | recite poems | sketch portraits | grow roses
weather ~: sunny | rainy | windy | cold | warm | foggy | snowy | bright | cloudy | frosty | stormy | misty | golden | chilly | breezy | mild
  | drizzly | sweltering | crisp | hazy
gloomy ~: dark | stormy | cold | moonless | windy | silent | rainy | foggy | snowy | starless | pitch-black | blustery
daypart: morning | afternoon | evening | day | weekend | holiday
weekday: Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday
morning: noon | sunrise | the rooster crowed | the bells rang | the sun tickled <hero.their> nose | breakfast time
dusk: sunset | dark | bedtime | the first star | supper | the lamps were lit | moonrise | the owls awoke
season: summer | autumn | fall | October | September | August | July | the harvest | midsummer
hour: nine | ten | eleven | twelve | one | two | three | four
number: two | three | four | five | six | seven
number_many: eight | nine | ten | eleven | twelve | thirteen | fourteen | fifteen | sixteen | seventeen | eighteen | nineteen | twenty
  | thirty | forty | fifty | sixty | seventy | eighty | ninety
moon: full | silver | yellow | half | sleepy | golden | thin | pale
night_sound ~: rain | clock | wind | owls | river | crickets | snow | frogs | distant trains | waves | nightingale | weathercock
olden: the moon was young | teapots could talk | every hill had its giant | birds wrote letters | rivers ran uphill | clocks had only one hand
  | bears kept shops | the stars were still being painted | kings baked their own bread | the sea was sweet | mountains walked at night | snow was warm
beyond ~: seven hills | silver sea | last lighthouse | great desert | northern woods | singing river | glass mountain | end of the road
  | misty islands | old stone bridge | whispering marshes | sleeping volcano | thousand lakes | valley of windmills | forgotten railway | border of dreams
hamlet_front ~: Apple | Oak | Willow | Green | Stone | Maple | Brook | Clover | Fox | Honey | Rose | Amber | Bell | Cherry | Copper | Dandelion | Elder
  | Fern | Goose | Hazel | Heather | Juniper | Lark | Meadow | Moss | Nettle | Otter | Pebble | Plum | Quill | Raven | Silver | Summer | Swan
  | Thorn | Violet | Walnut | Winter | Yarrow | Acorn
hamlet_back ~: ton | field | brook | dale | bury | ford | wick | hollow | mere | haven | bridge | stead | worth | combe | ham | ley | thorpe | gate | cross | well
)";

}  // namespace

const StoryGrammar& built_in_stories() {
  static const StoryGrammar grammar(std::string(kBeginnings) + kPlots + kCharacters + kThings +
                                    kDoings);
  return grammar;
}

}  // namespace xtrain
