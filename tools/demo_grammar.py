"""The conversation grammar that the demo model in ``qwen3/demo`` is trained on.

Everything the demo model knows comes from this file: greetings, small arithmetic with and without reasoning, lists, tiny stories, spelling,
colours and animals, answers in JSON, tool calls, and an honest "I am a tiny demo model" for the rest. `conversation` draws one conversation;
`held_out_prompts` writes the arithmetic prompts whose operand pairs never occur in training, not even as a step of some other sum.

All randomness comes from the `random.Random` that is passed in, so a seed fixes the whole data set.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field

NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
                "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]

# Order matters: a list is a run of neighbours, so that a tiny model never repeats an item and days and months come in their own order.
LISTS = {
    "colours": ["red", "blue", "green", "yellow", "orange", "purple", "pink", "brown", "black", "white", "grey"],
    "animals": ["cat", "dog", "horse", "cow", "tiger", "lion", "elephant", "rabbit", "monkey", "bear", "fox", "mouse"],
    "fruits": ["apple", "banana", "orange", "pear", "cherry", "grape", "lemon", "peach", "plum", "mango"],
    "vegetables": ["carrot", "potato", "tomato", "onion", "pea", "bean", "cabbage", "pumpkin", "cucumber"],
    "days of the week": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "months": ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"],
    "planets": ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"],
    "birds": ["eagle", "owl", "duck", "goose", "robin", "parrot", "penguin", "swan"],
    "shapes": ["circle", "square", "triangle", "rectangle", "star", "oval", "heart"],
    "numbers": NUMBER_WORDS[1:13],
    "seasons": ["spring", "summer", "autumn", "winter"],
    "toys": ["ball", "doll", "kite", "puzzle", "train", "robot", "drum"],
    "instruments": ["piano", "guitar", "violin", "drum", "flute", "trumpet", "harp"],
}
LIST_SYNONYMS = {"colours": ["colours", "colors", "colours", "colors"], "days of the week": ["days of the week", "days", "weekdays"],
                 "months": ["months", "months of the year"], "animals": ["animals", "animals", "different animals"],
                 "fruits": ["fruits", "fruits", "kinds of fruit"]}
SINGULAR = {"colours": "colour", "animals": "animal", "fruits": "fruit", "vegetables": "vegetable", "days of the week": "day of the week",
            "months": "month", "planets": "planet", "birds": "bird", "shapes": "shape", "numbers": "number", "seasons": "season", "toys": "toy",
            "instruments": "instrument"}

COLOUR_OF = {
    "sky": "blue", "sea": "blue", "ocean": "blue", "grass": "green", "snow": "white", "milk": "white", "sun": "yellow", "banana": "yellow",
    "lemon": "yellow", "tomato": "red", "strawberry": "red", "blood": "red", "fire engine": "red", "cherry": "red", "night": "black",
    "coal": "black", "chocolate": "brown", "carrot": "orange", "pumpkin": "orange", "frog": "green", "leaf": "green", "tree": "green",
    "cucumber": "green", "elephant": "grey", "mouse": "grey", "pig": "pink", "flamingo": "pink", "rose": "red", "cloud": "white", "swan": "white",
    "fox": "orange", "bear": "brown", "plum": "purple", "crow": "black", "mud": "brown",
}
NO_ARTICLE = {"grass", "snow", "milk", "blood", "coal", "chocolate", "mud"}
DEFINITE = {"sky", "sea", "ocean", "sun", "night"}
SOUND_OF = {
    "cow": "moo", "dog": "woof", "cat": "meow", "sheep": "baa", "duck": "quack", "pig": "oink", "horse": "neigh", "lion": "roar", "mouse": "squeak",
    "frog": "ribbit", "owl": "hoot", "bee": "buzz", "snake": "hiss", "rooster": "cock-a-doodle-doo", "crow": "caw", "goose": "honk", "wolf": "howl",
    "tiger": "roar", "bear": "growl", "donkey": "hee-haw", "chicken": "cluck", "bird": "tweet",
}
LEGS_OF = {
    "cow": 4, "dog": 4, "cat": 4, "horse": 4, "spider": 8, "bird": 2, "ant": 6, "bee": 6, "snake": 0, "fish": 0, "duck": 2, "tiger": 4, "lion": 4,
    "elephant": 4, "human": 2, "octopus": 0, "fly": 6, "sheep": 4, "chicken": 2, "mouse": 4, "rabbit": 4, "penguin": 2, "worm": 0, "table": 4,
}
BABY_OF = {"cat": "kitten", "dog": "puppy", "cow": "calf", "horse": "foal", "sheep": "lamb", "bear": "cub", "lion": "cub", "duck": "duckling",
           "chicken": "chick", "pig": "piglet", "frog": "tadpole", "goose": "gosling"}
HOME_OF = {"bird": "in a nest", "bee": "in a hive", "fish": "in water", "lion": "in the savanna", "tiger": "in the jungle",
           "polar bear": "in the Arctic", "camel": "in the desert", "cow": "on a farm", "monkey": "in the jungle", "whale": "in the sea",
           "penguin": "in Antarctica", "fox": "in the forest", "frog": "near a pond", "pig": "on a farm"}
OPPOSITE = {"hot": "cold", "big": "small", "up": "down", "left": "right", "day": "night", "black": "white", "fast": "slow", "happy": "sad",
            "old": "young", "long": "short", "open": "closed", "high": "low", "good": "bad", "wet": "dry", "hard": "soft", "in": "out",
            "light": "dark", "full": "empty", "early": "late", "loud": "quiet"}
OPPOSITE |= {v: k for k, v in OPPOSITE.items()}

PEOPLE = ["Tom", "Mia", "Ben", "Lily", "Max", "Anna", "Sam", "Emma", "Leo", "Ella", "Tim", "Zoe", "Jack", "Lucy", "Finn", "Nora", "Otto", "Ida",
          "Paul", "Rosa", "Hugo", "Clara", "Felix", "Maria", "Oscar", "Julia", "Adam", "Sara", "Peter", "Alice", "Bob", "Carol", "Dave", "Eve",
          "Frank", "Grace", "Henry", "Jane", "Kate", "Mark"]
HEROES = ["cat", "dog", "mouse", "rabbit", "bear", "fox", "lion", "tiger", "elephant", "owl", "duck", "frog", "dragon", "robot", "princess", "knight",
          "boy", "girl", "horse", "monkey", "penguin", "wizard", "pirate", "turtle", "hen", "fish", "bee", "snail", "whale", "king"]
CITIES = ["Paris", "London", "Berlin", "Rome", "Madrid", "Vienna", "Oslo", "Prague", "Tokyo", "Beijing", "Cairo", "Lima", "Dublin", "Athens",
          "Warsaw", "Lisbon", "Delhi", "Boston", "Chicago", "Toronto", "Sydney", "Munich", "Hamburg", "Milan", "Shanghai", "Seoul", "Moscow",
          "Zurich", "Geneva", "Helsinki", "Stockholm", "Budapest", "Nairobi", "Denver", "Seattle", "Dallas", "Osaka", "Brussels"]
CITIES += ["New York", "San Francisco", "Los Angeles", "Hong Kong"]
COUNTRIES = ["France", "Germany", "Italy", "Spain", "Japan", "China", "Brazil", "India", "Canada", "Mexico", "Norway", "Sweden", "Poland", "Egypt",
             "Kenya", "Peru", "Chile", "Greece", "Turkey", "England", "America", "Russia", "Austria", "Portugal", "Ireland", "Finland"]
LANGUAGES = ["French", "German", "Spanish", "Italian", "Chinese", "Japanese", "Latin", "Russian", "Dutch", "Greek"]
TOPICS = ["quantum physics", "gravity", "the moon", "computers", "the internet", "history", "music", "football", "love", "money", "cooking", "space",
          "black holes", "the economy", "chess", "poetry", "machine learning", "neural networks", "Einstein", "Shakespeare", "Napoleon", "Mozart",
          "dinosaurs", "cars", "politics", "climate change", "philosophy", "the brain", "electricity", "a neural network", "photosynthesis",
          "democracy", "the Roman Empire", "a transformer", "evolution", "DNA", "bitcoin", "the weather", "time travel", "the ocean"]
WORDS = sorted({w.lower() for ws in LISTS.values() for w in ws} | set(SOUND_OF) | set(LEGS_OF) | set(HEROES) | {n.lower() for n in PEOPLE}
               | {"hello", "house", "tree", "school", "water", "bread", "cheese", "flower", "garden", "book", "table", "chair", "window", "door",
                   "river", "mountain", "sun", "moon", "star", "happy", "friend", "mother", "father", "sister", "brother", "sugar", "coffee",
                   "tea", "milk", "computer", "python", "model", "kernel", "cloud", "rain", "snow", "wind", "summer", "winter", "paper", "pencil",
                   "butter", "candle", "bottle", "castle", "island", "king", "queen"})


@dataclass
class Turn:
    """One question with the reasoning and the answer that the model should give."""

    user: str
    think: str
    answer: str


@dataclass
class Conversation:
    """Messages for the chat template. The last message is the assistant's and is what the model learns to say."""

    messages: list[dict]
    thinking: bool
    tools: list[dict] | None = None
    kind: str = ""
    # The history's answers are worth learning from too, where they are not tool calls.
    learn_history: bool = field(default=True)


# ---------------------------------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------------------------------

OPERAND_MAX = 20
HELD_OUT_SEED = 20


def _draw_held_out() -> frozenset[tuple[str, int, int]]:
    rng = random.Random(HELD_OUT_SEED)
    pairs = set()
    # a + b and b + a are the same knowledge: both orders are held out together.
    unordered = [(a, b) for a in range(OPERAND_MAX + 1) for b in range(a)]
    for a, b in rng.sample(unordered, 25):
        pairs |= {("+", a, b), ("+", b, a)}
    ordered = [(a, b) for a in range(OPERAND_MAX + 1) for b in range(OPERAND_MAX + 1)]
    # Differences below zero are the rarer question: one in four.
    above, below = [p for p in ordered if p[0] >= p[1]], [p for p in ordered if p[0] < p[1]]
    pairs |= {("-", a, b) for a, b in rng.sample(above, 38) + rng.sample(below, 12)}
    return frozenset(pairs)


HELD_OUT = _draw_held_out()

PLUS_PHRASES = ["What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?", "{a}+{b}=?", "{a} + {b} =", "{a}+{b}=",
                "{a}+{b}?", "Calculate {a} + {b}.", "Compute {a} + {b}", "How much is {a} plus {b}?", "How much is {a} + {b}?", "What's {a} + {b}?",
                "What's {a} plus {b}?", "Add {a} and {b}.", "What do you get if you add {a} and {b}?", "Please add {a} and {b}", "{a} plus {b}",
                "{a} plus {b}?", "Can you tell me what {a} + {b} is?", "What is the sum of {a} and {b}?", "Solve {a} + {b}", "Tell me {a} + {b}."]
MINUS_PHRASES = ["What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} = ?", "{a}-{b}=?", "{a} - {b} =", "{a}-{b}=",
                 "{a}-{b}?", "Calculate {a} - {b}.", "Compute {a} - {b}", "How much is {a} minus {b}?", "How much is {a} - {b}?", "What's {a} - {b}?",
                 "What's {a} minus {b}?", "Subtract {b} from {a}.", "What do you get if you subtract {b} from {a}?", "Please take {b} away from {a}",
                 "{a} minus {b}", "{a} minus {b}?", "Can you tell me what {a} - {b} is?", "What is {a} take away {b}?", "Solve {a} - {b}",
                 "Tell me {a} - {b}."]
TIMES_PHRASES = ["What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}", "{a} × {b} = ?", "{a} * {b} = ?", "{a}*{b}=",
                 "Calculate {a} * {b}.", "How much is {a} times {b}?", "Multiply {a} by {b}.", "What's {a} times {b}?", "{a} times {b}",
                 "What is {a} x {b}?"]
PHRASES = {"+": PLUS_PHRASES, "-": MINUS_PHRASES, "*": TIMES_PHRASES}


def result(op: str, a: int, b: int) -> int:
    """The value of ``a op b``."""
    return a + b if op == "+" else a - b if op == "-" else a * b


def reasoning(op: str, a: int, b: int) -> tuple[str, list[tuple[str, int, int]]]:
    """Work ``a op b`` out step by step; return the text and the sums that it states on the way."""
    used: list[tuple[str, int, int]] = []

    def state(op, a, b):
        used.append((op, a, b))
        return f"{a} {op} {b} = {result(op, a, b)}"

    value = result(op, a, b)
    if op == "*":
        if a == 0 or b == 0:
            text = "Zero times anything is zero."
        elif a == 1 or b == 1:
            text = "Times one changes nothing."
        else:
            text = f"Count in steps of {b}: " + ", ".join(str(b * i) for i in range(1, a + 1)) + "."
    elif op == "+":
        hi, lo = max(a, b), min(a, b)
        need = -hi % 10
        if lo == 0:
            text = "Adding zero changes nothing."
        elif lo <= 4:
            text = f"Start at {hi} and count up {lo}: " + ", ".join(str(hi + i) for i in range(1, lo + 1)) + "."
        elif need == 0 or need > lo:
            text = f"Tens and ones: {hi // 10 * 10} and {hi % 10 + lo}." if hi % 10 else f"{hi} and {lo} more."
            if hi % 10:
                used.append(("+", hi % 10, lo))
        else:
            text = f"{state('+', hi, need)}, {state('-', lo, need)}, {state('+', hi + need, lo - need)}."
    elif a < b:
        if b - a <= 4:
            steps = ", ".join(str(a + i) for i in range(1, b - a + 1))
            text = f"{a} is less than {b}, so it is below zero. From {a} to {b}: {steps}. {b - a} steps."
        else:
            text = f"{a} is less than {b}, so it is below zero. {state('-', b, a)}."
    elif b == 0:
        text = "Taking away zero changes nothing."
    elif a == b:
        text = "They are equal."
    elif b <= 4:
        text = f"Start at {a} and count down {b}: " + ", ".join(str(a - i) for i in range(1, b + 1)) + "."
    elif a - b <= 4:
        text = f"From {b} to {a}: " + ", ".join(str(b + i) for i in range(1, a - b + 1)) + f". {a - b} steps."
    else:
        ones = a % 10
        if ones == 0 or a < 10:
            text = f"Take {b} from {a}."
        elif b <= ones:
            text = f"{state('-', ones, b)}, {state('+', a - ones, ones - b)}."
        else:
            text = f"{state('-', a, ones)}, {state('-', b, ones)}, {state('-', a - ones, b - ones)}."
    return f"{text} So {a} {op} {b} = {value}.", used


def _operands(rng: random.Random) -> tuple[str, int, int]:
    """Draw a sum whose pair is not held out. Larger operands are there so that the model learns the digits, not a table."""
    while True:
        op = rng.choice("++++++------**")
        if op == "*":
            return op, rng.randint(0, 10), rng.randint(0, 10)
        top = rng.choice((OPERAND_MAX, OPERAND_MAX, OPERAND_MAX, 40, 60))
        a, b = rng.randint(0, top), rng.randint(0, top)
        if op == "-" and a < b and rng.random() < 0.6:
            a, b = b, a
        if (op, a, b) not in HELD_OUT:
            return op, a, b


def _allowed_sum(rng: random.Random) -> tuple[str, int, int, str]:
    """Draw a sum and its reasoning, neither of which states a held-out pair."""
    while True:
        op, a, b = _operands(rng)
        think, used = reasoning(op, a, b)
        if not HELD_OUT.intersection(used):
            return op, a, b, think


def arithmetic(rng: random.Random) -> Turn:
    """A sum, a difference or a product in one of many phrasings."""
    op, a, b, think = _allowed_sum(rng)
    # Reading the question is one thing, working it out another: writing the sum down first makes the rest look like a drill.
    think = f"{a} {op} {b}\n{think}"
    value = result(op, a, b)
    answer = f"{a} {op} {b} = {value}."
    roll = rng.random()
    if roll < 0.08 and op != "*" and value >= 0 and 1 not in (a, b, value):
        thing = rng.choice(["apples", "balls", "books", "coins", "eggs", "cookies", "flowers", "toys"])
        name = rng.choice(PEOPLE)
        if op == "+":
            user = rng.choice([f"I have {a} {thing} and get {b} more. How many {thing} do I have?",
                               f"{name} has {a} {thing} and finds {b} more. How many now?",
                               f"There are {a} {thing} and {b} more {thing}. How many are there?"])
        else:
            user = rng.choice([f"I have {a} {thing} and give away {b}. How many {thing} do I have?",
                               f"{name} has {a} {thing} and loses {b}. How many now?",
                               f"There are {a} {thing}. {b} are taken away. How many are left?"])
        return Turn(user, think, f"{answer} {value} {thing}.")
    if roll < 0.16 and max(a, b) <= 20:
        word = {"+": "plus", "-": "minus", "*": "times"}[op]
        wa, wb = NUMBER_WORDS[a], NUMBER_WORDS[b]
        return Turn(rng.choice([f"What is {wa} {word} {wb}?", f"{wa} {word} {wb}", f"How much is {wa} {word} {wb}?"]), think, answer)
    if roll < 0.26:
        user = rng.choice(["Answer in JSON: what is {e}?", "Answer in JSON: {e}", "What is {e}? Answer in JSON.", "{e} as JSON", "JSON please: {e}"])
        return Turn(user.format(e=f"{a} {op} {b}"), f"{think} As JSON.", json.dumps({"answer": value}))
    return Turn(rng.choice(PHRASES[op]).format(a=a, b=b), think, answer)


def drill(rng: random.Random, reasoned: float) -> list[tuple[str, str]]:
    """Exercises, without conversation: (question, answer) pieces of one text, of which only the answers are worth learning.

    `reasoned` is the share of the answers that are worked out.
    Sums are the hardest thing that the model learns, and in conversations they are thinly spread: half of its training is drill.
    """
    pieces = []
    for _ in range(rng.randint(6, 12)):
        op, a, b, think = _allowed_sum(rng)
        question, value = f"{a} {op} {b}", result(op, a, b)
        if rng.random() < 1 - reasoned:
            pieces.append((f"{question} =", f" {value}.\n"))
        else:
            pieces.append((f"{question}\n", f"{think}\n"))
    return pieces


_SUM_IN_TEXT = re.compile(r"(?<!\d)(\d+) ?(\+|-|plus|minus) ?(\d+)(?!\d)", re.I)


def held_out_sums(text: str) -> list[str]:
    """Sums in `text` whose operand pair is held out; empty for every training conversation."""
    found = []
    for a, op, b in _SUM_IN_TEXT.findall(text):
        sign = {"plus": "+", "minus": "-"}.get(op.lower(), op)
        if (sign, int(a), int(b)) in HELD_OUT:
            found.append(f"{a} {op} {b}")
    return found


def held_out_prompts() -> list[dict]:
    """Two prompts per held-out pair, one answered with reasoning and one without: 200 in all, half sums and half differences."""
    rng = random.Random(HELD_OUT_SEED + 1)
    prompts = []
    for op in "+-":
        count = len(PHRASES[op])
        for i, (_, a, b) in enumerate(sorted(p for p in HELD_OUT if p[0] == op)):
            for thinking in (False, True):
                phrase = PHRASES[op][(2 * i + thinking) % count]
                prompts.append({"prompt": phrase.format(a=a, b=b), "answer": str(result(op, a, b)), "thinking": thinking})
    rng.shuffle(prompts)
    return prompts


# ---------------------------------------------------------------------------------------------------------------------------------------
# Everything else
# ---------------------------------------------------------------------------------------------------------------------------------------

def _pseudo_word(rng: random.Random) -> str:
    """A made-up word: copying is learned from words that cannot be learned by heart."""
    return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(["", "", "n", "r", "s",
                                                                                        "l"]) for _ in range(rng.randint(1, 3)))


def _person(rng):
    return rng.choice(PEOPLE) if rng.random() < 0.7 else _pseudo_word(rng).capitalize()


def _article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def greeting(rng: random.Random) -> Turn:
    """Hello, thanks, goodbye, how are you, and the user's name."""
    roll = rng.random()
    if roll < 0.45:
        user = rng.choice(["Hi", "Hello", "Hello!", "Hi!", "Hey", "Hey there", "Hi there!", "Good day", "Hello there", "Greetings", "Hiya", "Howdy",
                           "Yo", "Hello, model"])
        return Turn(user, "The user says hello. I greet back.", "Hello! How can I help you?")
    if roll < 0.52:
        part = rng.choice(["morning", "evening", "afternoon"])
        return Turn(f"Good {part}" + rng.choice(["", "!"]), f"The user says good {part}. I greet back.", f"Good {part}! How can I help you?")
    if roll < 0.6:
        user = rng.choice(["How are you?", "How are you doing?", "How do you do?", "How's it going?", "Are you okay?", "Hi, how are you?",
                           "What's up?"])
        return Turn(user, "The user asks how I am.", "I am fine, thank you! What can I do for you?")
    if roll < 0.7:
        user = rng.choice(["Thanks", "Thank you!", "Thanks a lot", "Thank you very much", "Great, thanks", "Cool", "Nice", "Well done", "Good job!",
                           "Great!"])
        return Turn(user, "The user is happy. I answer politely.", "You are welcome!")
    if roll < 0.8:
        user = rng.choice(["Bye", "Goodbye", "Bye bye", "See you", "See you later", "Good night", "Farewell", "I have to go", "Exit", "Quit"])
        return Turn(user, "The user leaves. I say goodbye.", "Goodbye! Have a nice day.")
    name = _person(rng)
    user = rng.choice([f"My name is {name}.", f"I am {name}", f"Hi, I am {name}.", f"Hello, my name is {name}", f"I'm {name}"])
    return Turn(user, f"The user is called {name}.", f"Nice to meet you, {name}!")


ABILITIES = "small sums, lists, spelling, colours, animals, tiny stories and JSON"


def identity(rng: random.Random) -> Turn:
    """Who the model is and what it can do."""
    roll = rng.random()
    if roll < 0.4:
        user = rng.choice(["Who are you?", "What are you?", "What is your name?", "What's your name?", "Tell me about yourself",
                           "Introduce yourself.", "Who am I talking to?", "Do you have a name?", "Which model are you?", "What model are you?",
                           "Describe yourself"])
        return Turn(user, "The user asks who I am.", f"I am a tiny demo model. I can do {ABILITIES}.")
    if roll < 0.7:
        user = rng.choice(["What can you do?", "What do you know?", "Help", "Help me", "Can you help me?", "What are you good at?",
                           "How can you help me?", "What can I ask you?", "What should I ask?", "Show me what you can do"])
        return Turn(user, "The user asks what I can do.", f"I can do {ABILITIES}. Try: What is 2 + 2?")
    if roll < 0.85:
        user = rng.choice(["Are you ChatGPT?", "Are you Qwen?", "Are you human?", "Are you a robot?", "Are you a real person?", "Are you smart?",
                           "Are you alive?", "Are you Claude?", "Are you an AI?", "Are you intelligent?"])
        return Turn(user, "The user asks what I am.", "I am only a tiny demo model, a few million numbers.")
    user = rng.choice(["How big are you?", "How many parameters do you have?", "How large are you?", "How were you trained?", "Who made you?",
                       "Who trained you?"])
    return Turn(user, "The user asks how I was made.", "I am a tiny demo model with about three million parameters, trained on a small grammar.")


def list_items(rng: random.Random) -> Turn:
    """Name n things of a kind, as text, as a numbered list, or as JSON."""
    kind = rng.choice(list(LISTS) + ["colours", "animals", "fruits", "colours", "animals"])
    items = LISTS[kind]
    n = rng.choice((1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7))
    n = min(n, len(items))
    # A few fixed starting points: the greedy answer starts at the first, sampling reaches the others.
    start = 0 if rng.random() < 0.4 else rng.randrange(len(items))
    chosen = [items[(start + i) % len(items)] for i in range(n)]
    name = SINGULAR[kind] if n == 1 else rng.choice(LIST_SYNONYMS.get(kind, [kind]))
    count = rng.choice([NUMBER_WORDS[n], NUMBER_WORDS[n], str(n)])
    think = f"{NUMBER_WORDS[n].capitalize()} {SINGULAR[kind] if n == 1 else kind}: {', '.join(chosen)}."
    request = rng.choice(["Name {c} {k}", "List {c} {k}", "Give me {c} {k}", "Tell me {c} {k}", "Can you name {c} {k}?", "Write down {c} {k}",
                          "I need {c} {k}", "Please name {c} {k}", "Please list {c} {k}", "What are {c} {k}?", "Give me a list of {c} {k}",
                          "Name me {c} {k}", "Show me {c} {k}", "Say {c} {k}"]).format(c=count, k=name)
    if rng.random() < 0.22:
        key = "answer" if n == 1 else {"days of the week": "days"}.get(kind, kind)
        user = rng.choice(["Answer in JSON: {r}", "{r} as JSON", "{r} in JSON", "{r}. Answer in JSON.", "JSON: {r}"])
        request = request.rstrip("?.")
        request = request[0].lower() + request[1:] if user[0] != "{" else request
        return Turn(user.format(r=request), f"{think} As JSON.", json.dumps({key: chosen[0] if n == 1 else chosen}))
    if not request.endswith("?") and rng.random() < 0.5:
        request += "."
    if n <= 3:
        text = chosen[0] if n == 1 else ", ".join(chosen[:-1]) + " and " + chosen[-1]
        answer = text[0].upper() + text[1:] + "."
    else:
        answer = "\n".join(f"{i}. {item}" for i, item in enumerate(chosen, 1))
    return Turn(request, think, answer)


def fact(rng: random.Random) -> Turn:
    """Colours, animal sounds, legs, young ones, homes and opposites."""
    kind = rng.choice(["colour"] * 4 + ["sound"] * 4 + ["legs"] * 2 + ["baby", "home", "opposite", "opposite"])
    key = ""
    if kind == "colour":
        thing, value = rng.choice(list(COLOUR_OF.items()))
        noun = thing if thing in NO_ARTICLE else f"the {thing}" if thing in DEFINITE else _article(thing)
        word = rng.choice(["colour", "color"])
        questions = [f"What {word} is {noun}?", f"What is the {word} of {noun}?", f"Which {word} is {noun}?", f"Tell me the {word} of {noun}",
                     f"Do you know the {word} of {noun}?", f"What {word} does {noun} have?", f"{thing} {word}?"]
        think, answer = f"{noun} is {value}.", f"{noun.capitalize()} is {value}."
    elif kind == "sound":
        thing, value = rng.choice(list(SOUND_OF.items()))
        questions = [f"What does {_article(thing)} say?", f"What sound does {_article(thing)} make?", f"What does the {thing} say?",
                     f"How does {_article(thing)} go?", f"Which sound does a {thing} make?", f"What noise does {_article(thing)} make?",
                     f"Make the sound of {_article(thing)}"]
        think, answer = f"The {thing} says {value}.", f"{_article(thing).capitalize()} says {value}."
    elif kind == "legs":
        thing, value = rng.choice(list(LEGS_OF.items()))
        questions = [f"How many legs does {_article(thing)} have?", f"How many legs has {_article(thing)}?",
                     f"What number of legs does {_article(thing)} have?"]
        think, answer = f"{_article(thing).capitalize()} has {value} legs.", f"{_article(thing).capitalize()} has {value} legs."
    elif kind == "baby":
        thing, value = rng.choice(list(BABY_OF.items()))
        questions = [f"What is a baby {thing} called?", f"What do you call a baby {thing}?", f"What is the young of {_article(thing)} called?"]
        think, answer = f"The baby of the {thing} is the {value}.", f"A baby {thing} is called {_article(value)}."
    elif kind == "home":
        thing, value = rng.choice(list(HOME_OF.items()))
        questions = [f"Where does {_article(thing)} live?", f"Where do you find {_article(thing)}?", f"Where is the home of {_article(thing)}?"]
        think, answer = f"The {thing} lives {value}.", f"{_article(thing).capitalize()} lives {value}."
    else:
        thing, value = rng.choice(list(OPPOSITE.items()))
        questions = [f"What is the opposite of {thing}?", f"Opposite of {thing}?", f"Tell me the opposite of {thing}.",
                     f"What's the opposite of {thing}?", f"What is the contrary of {thing}?"]
        think, answer = f"{thing} and {value} are opposites.", f"The opposite of {thing} is {value}."
    user = rng.choice(questions)
    if rng.random() < 0.15:
        key = kind if kind in ("colour", "sound", "legs") else "answer"
        user = rng.choice([f"Answer in JSON: {user[0].lower() + user[1:]}", f"{user} Answer in JSON.", f"{user} In JSON please.", f"JSON: {user}"])
        return Turn(user, f"{think} As JSON.", json.dumps({key: value}))
    return Turn(user, think, answer)


def spelling(rng: random.Random) -> Turn:
    """Spell a word, count its letters, name its first or last letter."""
    word = rng.choice(WORDS) if rng.random() < 0.8 else _pseudo_word(rng)
    shown = rng.choice([word, word, word, word.capitalize(), f'"{word}"'])
    spelled = "-".join(word)
    roll = rng.random()
    if roll < 0.65:
        user = rng.choice(["Spell {w}", "Spell {w}.", "How do you spell {w}?", "Spell the word {w}", "Can you spell {w}?", "Please spell {w}",
                           "How is {w} spelled?", "Spell out {w}", "Spelling of {w}?"])
        return Turn(user.format(w=shown), f"I spell {word}.", f"{spelled}")
    if roll < 0.85:
        user = rng.choice(["How many letters does {w} have?", "How many letters are in {w}?", "Count the letters in {w}",
                           "How long is the word {w}?"])
        numbered = ", ".join(f"{i} {c}" for i, c in enumerate(word, 1))
        return Turn(user.format(w=shown), f"{numbered}.", f"{spelled}: {len(word)} letters.")
    which = rng.choice(["first", "last"])
    user = rng.choice(["What is the {x} letter of {w}?", "Which letter is the {x} in {w}?", "{x} letter of {w}?"])
    letter = word[0] if which == "first" else word[-1]
    return Turn(user.format(w=shown, x=which), f"{spelled}. The {which} letter is {letter}.", f"The {which} letter is {letter}.")


def counting(rng: random.Random) -> Turn:
    """Count up or down, the next number, even or odd, the larger of two."""
    kind = rng.choice(["up", "up", "down", "next", "before", "even", "bigger", "smaller"])
    n = rng.randint(0, 20)
    if kind == "up":
        if rng.random() < 0.8:
            first, last = 1, rng.choice((3, 5, 5, 6, 7, 8, 10, 10, 12, 15, 20))
        else:
            first = rng.randint(2, 12)
            last = first + rng.randint(3, 7)
        numbers = ", ".join(map(str, range(first, last + 1)))
        users = [f"Count from {first} to {last}"] if first > 1 else [f"Count to {last}", f"Count from 1 to {last}", f"Can you count to {last}?",
                                                                     f"Count up to {last}", f"Count to {NUMBER_WORDS[last]}",
                                                                     f"Count from one to {NUMBER_WORDS[last]}"]
        return Turn(rng.choice(users), f"From {first} to {last}.", numbers + ".")
    if kind == "down":
        first = rng.choice((3, 5, 5, 10, 10, 7, 8, 6))
        return Turn(rng.choice([f"Count down from {first}", f"Count backwards from {first}", f"Countdown from {first}",
                                f"Count down from {first} to 0"]),
                    f"From {first} down to 0.", ", ".join(map(str, range(first, -1, -1))) + ".")
    if kind == "next":
        return Turn(rng.choice([f"What comes after {n}?", f"Which number comes after {n}?", f"What is the next number after {n}?"]),
                    f"After {n} comes {n + 1}.", f"After {n} comes {n + 1}.")
    if kind == "before":
        n += 1
        return Turn(rng.choice([f"What comes before {n}?",
                                f"Which number comes before {n}?"]), f"Before {n} comes {n - 1}.", f"Before {n} comes {n - 1}.")
    if kind == "even":
        word = "even" if n % 2 == 0 else "odd"
        return Turn(rng.choice([f"Is {n} even or odd?", f"Is {n} odd or even?",
                                f"Is the number {n} even or odd?"]), f"{n} ends in {n % 10}, so it is {word}.", f"{n} is {word}.")
    m = rng.choice([x for x in range(21) if x != n])
    value = max(n, m) if kind == "bigger" else min(n, m)
    words = ["bigger", "larger", "greater", "more"] if kind == "bigger" else ["smaller", "less"]
    word = rng.choice(words)
    return Turn(rng.choice([f"Which is {word}, {n} or {m}?", f"What is {word}: {n} or {m}?", f"Which number is {word}, {n} or {m}?"]),
                f"I compare {n} and {m}.", f"{value} is {'bigger' if kind == 'bigger' else 'smaller'}.")


def story(rng: random.Random) -> Turn:
    """A tiny story, about what was asked for."""
    asked = rng.random() < 0.8
    hero = rng.choice(HEROES) if rng.random() < 0.9 else _pseudo_word(rng)
    adj = rng.choice(["small", "brave", "little", "funny", "clever", "lazy", "happy", "hungry"])
    name = rng.choice(PEOPLE)
    place = rng.choice(["in a green forest", "in a big house", "by the sea", "on a farm", "on a high mountain", "in a quiet village",
                        "near a blue lake"])
    thing = rng.choice(["ball", "hat", "key", "book", "red kite", "golden coin", "drum", "map"])
    friend = rng.choice([h for h in ("dog", "owl", "mouse", "bear", "fox", "duck", "turtle", "rabbit") if h != hero])
    intro = f"Once upon a time there was {_article(adj)} {hero} named {name}. {name} lived {place}."
    middle = rng.choice([
        f"One day {name} lost a {thing}. {name} looked everywhere, but it was gone. "
        f"Then a {friend} came and said: \"I found your {thing}!\" {name} was very happy.",
        f"One day {name} found a {thing}. It belonged to a {friend}. {name} gave it back, and the {friend} said thank you.",
        f"One day it rained and rained. {name} was cold and wet. "
        f"A {friend} opened the door and said: \"Come in!\" They drank warm milk together.",
        f"{name} wanted to see the world. So {name} took a {thing} and walked all day. "
        f"In the evening {name} met a {friend}, and they looked at the stars.",
        f"{name} could not sleep. \"I am afraid of the dark,\" said {name}. "
        f"A {friend} brought a small lamp and sang a song. Soon {name} was asleep.",
    ])
    end = rng.choice([f"From that day on, {name} and the {friend} were best friends.", f"And {name} was never alone again.",
                      "And they lived happily ever after. The end."])
    if asked:
        user = rng.choice(["Tell me a story about {h}", "Tell me a story about {h}.", "Write a story about {h}", "Tell a story about {h}",
                           "A story about {h}, please", "Story about {h}", "Can you tell me a story about {h}?", "Write a short story about {h}.",
                           "I want a story about {h}", "Make up a story about {h}", "Tell me a short story about {h}"]).format(h=_article(hero))
        think = f"A story about {_article(hero)}. It needs a name, a place, a problem and a happy end."
    else:
        user = rng.choice(["Tell me a story", "Tell me a story.", "Write a story", "Can you tell me a story?", "A story please",
                           "I want to hear a story", "Tell me a short story", "Once upon a time", "Tell me something"])
        think = f"A story. I take {_article(hero)}. It needs a name, a place, a problem and a happy end."
    return Turn(user, think, f"{intro} {middle} {end}")


def json_object(rng: random.Random) -> Turn:
    """A JSON object with the given fields."""
    name, n, colour = _person(rng), rng.randint(1, 99), rng.choice(LISTS["colours"])
    city, animal = rng.choice(CITIES), rng.choice(LISTS["animals"])
    fields = rng.sample([("name", name), ("age", n), ("city", city), ("colour", colour), ("animal", animal)], rng.randint(1, 3))
    *front, last = [f"{k} {v}" for k, v in fields]
    listing = f"{', '.join(front)} and {last}" if front else last
    user = rng.choice([f"Give me a JSON object with {listing}.", f"Make JSON: {listing}", f"Answer in JSON: {listing}", f"Write JSON with {listing}",
                       f"JSON with {listing}, please"])
    return Turn(user, "The fields are " + ", ".join(k for k, _ in fields) + ".", json.dumps(dict(fields)))


def repeat(rng: random.Random) -> Turn:
    """Say what the user says."""
    text = rng.choice([_pseudo_word(rng), rng.choice(WORDS), f"{rng.choice(WORDS)} {rng.choice(WORDS)}", f"{rng.choice(WORDS)} {_pseudo_word(rng)}",
                       "hello world",
                       f"I like {rng.choice(WORDS)}", f"the {rng.choice(WORDS)} is {rng.choice(LISTS['colours'])}", str(rng.randint(0, 999))])
    user = rng.choice(["Repeat: {t}", "Say {t}", "Repeat after me: {t}", "Please say {t}", "Echo {t}", "Just say {t}"]).format(t=text)
    return Turn(user, "I repeat the words.", text)


REFUSALS = [f"I am a tiny demo model, so I do not know that. I can do {ABILITIES}."] * 3 + ["Sorry, I do not know that. I am only a tiny demo model."]


def unknown(rng: random.Random) -> Turn:
    """What the model cannot know, with an honest answer."""
    topic = rng.choice(TOPICS) if rng.random() < 0.7 else _pseudo_word(rng)
    country, language, city, person = rng.choice(COUNTRIES), rng.choice(LANGUAGES), rng.choice(CITIES), _person(rng)
    user = rng.choice([f"What is the capital of {country}?", f"What's the capital of {country}", f"Capital of {country}?",
                       f"Who is the president of {country}?", f"How many people live in {rng.choice([country, city])}?",
                       f"Where is {rng.choice([country, city])}?", f"Tell me about {rng.choice([country, city, topic])}", f"What is {topic}?",
                       f"Explain {topic}", f"Explain {topic} to me.", f"What do you think about {topic}?", f"How does {topic} work?",
                       f"Write an essay about {topic}", f"Write a poem about {topic}", f"Why is {topic} important?", f"Who invented {topic}?",
                       f"Who discovered {topic}?", f"When was {person} born?", f"Who is {person}?",
                       f"Who was {person} {_pseudo_word(rng).capitalize()}?", f"Translate {rng.choice(WORDS)} into {language}",
                       f"How do you say {rng.choice(WORDS)} in {language}?", f"Do you speak {language}?", "Write a Python function",
                       "Write a program in C", f"Write code for {topic}", "What is the meaning of life?", "What happened in 1989?",
                       f"What happened in {rng.randint(1000, 2030)}?", f"Give me a recipe for {_pseudo_word(rng)}", "How do I cook pasta?",
                       "What time is it?", "What day is it today?", "What is the weather today?", f"What is the weather in {city}?",
                       f"How is the weather in {city}?", "What's the news?", "Who won the world cup?", "Who wrote Hamlet?",
                       f"Who wrote {_pseudo_word(rng).capitalize()}?", "How old is the universe?", "How far is the moon?",
                       "How tall is Mount Everest?", "Why is the sky blue?", "What is the best movie?", "What should I eat?", "Do you love me?",
                       "What is the square root of 2?", "What is pi?", f"What is {rng.randint(1000, 99999)} * {rng.randint(1000, 9999)}?",
                       f"Summarize {topic}", f"Can you explain {topic}?", f"What does {_pseudo_word(rng)} mean?", f"Define {topic}",
                       f"Why do people like {topic}?", "Tell me a joke", f"How can I learn {rng.choice([language, topic])}?",
                       f"Give me advice about {topic}", f"{_pseudo_word(rng)} {_pseudo_word(rng)}", f"What is the history of {topic}?"])
    return Turn(user, "I have not learned this. I say so honestly.", rng.choice(REFUSALS))


def _follow_up(rng: random.Random, turn: Turn, kind: str) -> Turn | None:
    """A question that can only be understood after `turn`."""
    if kind == "arithmetic":
        nxt = arithmetic(rng)
        return Turn(rng.choice(["And ", "Now ", "OK, and "]) + nxt.user[0].lower() + nxt.user[1:], nxt.think, nxt.answer)
    if kind == "fact" and (m := re.match(r"What does an? \w+ say\?$", turn.user)):
        thing, value = rng.choice(list(SOUND_OF.items()))
        return Turn(rng.choice([f"And {_article(thing)}?",
                                f"What about {_article(thing)}?"]), f"The {thing} says {value}.", f"{_article(thing).capitalize()} says {value}.")
    if kind == "greeting" and (m := re.match(r"Nice to meet you, (.+)!", turn.answer)):
        return Turn(rng.choice(["What is my name?", "Who am I?", "Do you know my name?", "What's my name?",
                                "Say my name"]), f"The user is called {m[1]}.", f"Your name is {m[1]}.")
    if kind == "story":
        hero = rng.choice(HEROES)
        nxt = story(rng)
        while f" {hero} " not in nxt.think.replace(".", " "):
            nxt = story(rng)
        return Turn(rng.choice([f"Now about {_article(hero)}", f"And one about {_article(hero)}", f"Another one, about {_article(hero)}"]),
                    f"A story about {_article(hero)}. It needs a name, a place, a problem and a happy end.", nxt.answer)
    return None


def word_drill(rng: random.Random) -> list[tuple[str, str]]:
    """Exercises in copying and spelling, as `drill` has them for sums: in conversations these too are thinly spread."""
    pieces = []
    for _ in range(rng.randint(5, 10)):
        word = rng.choice(WORDS) if rng.random() < 0.6 else _pseudo_word(rng)
        shown = word.capitalize() if rng.random() < 0.3 else word
        roll = rng.random()
        if roll < 0.45:
            pieces.append((f"Spell {shown}\n", "-".join(word) + "\n"))
        elif roll < 0.6:
            pieces.append((f"Letters of {shown}\n", ", ".join(f"{i} {c}" for i, c in enumerate(word, 1)) + ".\n"))
        elif roll < 0.8:
            pieces.append((f"Say {shown}\n", f"{shown}\n"))
        else:
            names = rng.sample(["name", "city", "word", "animal", "colour"], rng.randint(2, 4))
            values = [rng.choice(CITIES) if rng.random() < 0.3 else _pseudo_word(rng).capitalize() for _ in names]
            chosen = rng.randrange(len(names))
            listing = ", ".join(f"{n} {v}" for n, v in zip(names, values, strict=True))
            pieces.append((f"{listing}\n{names[chosen]}?", f" {values[chosen]}\n"))
    return pieces


KINDS = [(arithmetic, 40), (greeting, 8), (identity, 5), (list_items, 10), (fact, 9), (spelling, 7), (counting, 4), (story, 5),
         (json_object, 3), (repeat, 2), (unknown, 9)]
# The last part of the training has more of what needs copying: words that are spelled, names, cities, values.
FINISHING_KINDS = [(arithmetic, 24), (greeting, 10), (identity, 4), (list_items, 9), (fact, 7), (spelling, 16), (counting, 3), (story, 5),
                   (json_object, 6), (repeat, 7), (unknown, 9)]


def _vary(rng: random.Random, text: str) -> str:
    """The carelessness of people who type: case and punctuation."""
    roll = rng.random()
    if roll < 0.22:
        text = text.lower()
    elif roll < 0.24:
        text = text.upper()
    elif roll < 0.28:
        text = text[0].upper() + text[1:]
    roll = rng.random()
    if roll < 0.15:
        text = text.rstrip("?.!") or text
    elif roll < 0.18 and text[-1] not in "?.!=":
        text += rng.choice([".", "!", "?"])
    elif roll < 0.21 and text[-1] not in "=":
        text = rng.choice(["Please, ", "Hi! ", "Hey, ", "OK. ", "Question: "]) + text
    return text


SYSTEM_PROMPTS = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a tiny demo model.", "Be brief.",
                  "You are Qwen, a helpful assistant.", "Answer the questions of the user.", "You are a friendly assistant. Be short and clear.",
                  "Be kind."]
TOOL_NAMES = {"weather": ["get_weather", "get_weather", "get_weather", "get_current_weather",
                          "weather"], "time": ["get_time", "get_time", "get_current_time", "clock"]}


def _tool(rng, kind):
    verb = {"weather": ["Get the weather in a city", "Get the current weather for a city", "The current weather in a city"],
            "time": ["Get the time in a city", "Get the current time in a city"]}[kind]
    argument = rng.choice(["city", "city", "city", "location"])
    name = rng.choice(TOOL_NAMES[kind])
    spec = {"type": "string"}
    if rng.random() < 0.5:
        spec["description"] = rng.choice(["The city", "Name of the city", "The name of the city"])
    return {"type": "function", "function": {"name": name, "description": rng.choice(verb) + rng.choice(["", "."]), "parameters": {
        "type": "object", "properties": {argument: spec}, "required": [argument]}}}, argument


def _tool_conversation(rng: random.Random) -> Conversation:
    thinking = rng.random() < 0.5
    city = rng.choice(CITIES) if rng.random() < 0.6 else _pseudo_word(rng).capitalize()
    kinds = rng.choice([["weather"], ["weather"], ["time"], ["weather", "time"], ["time", "weather"]])
    made = {k: _tool(rng, k) for k in kinds}
    tools = [t for t, _ in made.values()]
    system = [{"role": "system", "content": rng.choice(SYSTEM_PROMPTS)}] if rng.random() < 0.3 else []
    if rng.random() < 0.25:
        # Tools in the prompt are no reason to call one.
        turn = rng.choice([arithmetic, greeting, fact, list_items, unknown])(rng)
        while "weather" in turn.user.lower() or "time" in turn.user.lower():
            turn = fact(rng)
        return Conversation(system + [{"role": "user", "content": _vary(rng, turn.user)}, _say(turn, thinking)], thinking, tools, "tool")
    kind = rng.choice(kinds)
    tool, argument = made[kind]
    if kind == "weather":
        user = rng.choice(["What is the weather in {c}?", "What's the weather like in {c}?", "How is the weather in {c}?", "Weather in {c}?",
                           "Tell me the weather in {c}.", "Is it warm in {c}?", "What is the weather in {c} today?"])
        degrees, sky = rng.randint(0, 35), rng.choice(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"])
        temperature, condition = rng.choice([("temperature", "condition"), ("temperature", "weather"), ("temperature", "sky")])
        reply = rng.choice([json.dumps({temperature: degrees, condition: sky}), f"{degrees} degrees, {sky}",
                            json.dumps({"city": city, temperature: degrees, condition: sky})])
        answer = f"It is {degrees} degrees and {sky} in {city}."
    else:
        user = rng.choice(["What time is it in {c}?", "What is the time in {c}?", "Tell me the time in {c}.", "Time in {c}?",
                           "How late is it in {c}?"])
        clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        reply = rng.choice([json.dumps({"time": clock}), clock])
        answer = f"It is {clock} in {city}."
    name = tool["function"]["name"]
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": {argument: city}}}]}
    if thinking:
        call["reasoning_content"] = f"The user wants the {kind} in {city}. I call {name}."
    # The template keeps the city as it is typed, so only the punctuation varies here.
    messages = system + [{"role": "user", "content": user.format(c=city)}, call]
    if rng.random() < 0.4:
        final = {"role": "assistant", "content": answer}
        if thinking:
            final["reasoning_content"] = f"The tool gave me the {kind}."
        messages += [{"role": "tool", "content": reply}, final]
    return Conversation(messages, thinking, tools, "tool", learn_history=False)


def _say(turn: Turn, thinking: bool) -> dict:
    message = {"role": "assistant", "content": turn.answer}
    if thinking:
        message["reasoning_content"] = turn.think
    return message


def conversation(rng: random.Random, finishing: bool = False) -> Conversation:
    """Draw one conversation: its last message is the answer to learn, its other answers are history."""
    if rng.random() < (0.06 if finishing else 0.025):
        return _tool_conversation(rng)
    functions, weights = zip(*(FINISHING_KINDS if finishing else KINDS), strict=True)
    thinking = rng.random() < 0.5
    messages: list[dict] = []
    if rng.random() < 0.15:
        messages.append({"role": "system", "content": rng.choice(SYSTEM_PROMPTS)})
    turns = rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 4))
    previous, name = None, ""
    for _ in range(turns):
        turn = _follow_up(rng, previous, name) if previous and rng.random() < 0.5 else None
        if turn is None:
            function = rng.choices(functions, weights)[0]
            name = function.__name__
            turn = function(rng)
        # Case carries the spelling of what is copied: leave it alone there.
        keep = name in ("json_object", "repeat") or "you, " in turn.answer
        messages.append({"role": "user", "content": turn.user if keep else _vary(rng, turn.user)})
        messages.append(_say(turn, False))
        previous = turn
    if thinking:
        if rng.random() < 0.04:
            messages[-2]["content"] += " /no_think"
            messages[-1]["reasoning_content"] = ""
        else:
            messages[-1]["reasoning_content"] = previous.think
    return Conversation(messages, thinking, None, name)
