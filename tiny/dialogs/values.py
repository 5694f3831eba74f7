"""Owns values: what fills the slots of requests and the members of results, drawn by kind.

Half of the names are made of syllables, so that a model learns to copy a word and not a list. Real names that stand in
`HELD` are never drawn for training: the model is judged with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tiny.dialogs.phrases import lines_of, say

CITIES = (
    "Paris", "London", "Berlin", "Madrid", "Rome", "Vienna", "Prague", "Warsaw", "Lisbon", "Dublin", "Oslo", "Stockholm",
    "Helsinki", "Athens", "Budapest", "Brussels", "Amsterdam", "Zurich", "Geneva", "Milan", "Munich", "Hamburg", "Lyon",
    "Porto", "Seville", "Valencia", "Naples", "Turin", "Krakow", "Riga", "Vilnius", "Tallinn", "Sofia", "Bucharest",
    "Belgrade", "Zagreb", "Moscow", "Kyiv", "Istanbul", "Ankara", "Cairo", "Tunis", "Lagos", "Nairobi", "Accra", "Dakar",
    "Cape Town", "Dubai", "Tehran", "Baghdad", "Riyadh", "Mumbai", "Delhi", "Chennai", "Kolkata", "Dhaka", "Karachi",
    "Beijing", "Shanghai", "Shenzhen", "Chengdu", "Hong Kong", "Taipei", "Tokyo", "Osaka", "Kyoto", "Seoul", "Busan",
    "Bangkok", "Hanoi", "Manila", "Jakarta", "Singapore", "Sydney", "Melbourne", "Perth", "Auckland", "New York", "Boston",
    "Chicago", "Houston", "Dallas", "Denver", "Seattle", "Portland", "Miami", "Atlanta", "Toronto", "Montreal", "Vancouver",
    "Mexico City", "Havana", "Bogota", "Lima", "Quito", "Santiago", "Buenos Aires", "Sao Paulo", "Rio", "San Francisco",
)
HELD_CITIES = (
    "Glasgow", "Bergen", "Florence", "Granada", "Salzburg", "Antwerp", "Bordeaux", "Leipzig", "Gdansk", "Tbilisi", "Baku",
    "Kampala", "Lusaka", "Muscat", "Jaipur", "Kathmandu", "Colombo", "Xiamen", "Sapporo", "Cebu", "Brisbane",
    "Wellington", "Honolulu", "Phoenix", "Detroit", "Ottawa", "Guadalajara", "Caracas", "Montevideo",
)
CITIES_ZH = tuple("北京 上海 广州 深圳 成都 杭州 南京 武汉 西安 重庆 天津 苏州 青岛 大连 厦门 昆明 拉萨 香港 台北 东京 巴黎 伦敦 柏林 罗马 纽约".split())
HELD_CITIES_ZH = tuple("长沙 郑州 沈阳 哈尔滨 福州 合肥 贵阳 首尔 莫斯科 悉尼".split())
PEOPLE = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Mia", "Noah", "Olivia",
    "Paul", "Rosa", "Sam", "Tina", "Victor", "Wei", "Yuki", "Zoe", "Ali", "Bob", "Carol", "Dan", "Eve", "Frank", "George",
    "Hana", "Ivan", "Jin", "Karim", "Lena", "Marco", "Nina", "Omar", "Priya", "my mother", "my boss", "my sister", "Alice",
)
HELD_PEOPLE = ("Beatrice", "Dmitri", "Fatima", "Gustav", "Ingrid", "Mateo", "Penelope", "Ravi", "Sigrid", "Thomas")
HELD_PEOPLE_ZH = tuple("赵雷 孙莉 周杰 吴倩 郑涛 冯雪 蒋欣 沈浩 韩梅 杨帆".split())
PEOPLE_ZH = tuple("小明 小红 王伟 李娜 张敏 刘洋 陈静 妈妈 老板 爸爸 姐姐 同事 房东 老师".split())
_CITY_SIGNS = "北上广深成杭南武西重天苏青大厦昆香台东巴伦柏罗纽长郑沈哈福合贵首莫悉山海州京阳门岛都庆津安汉波温泉江河湖林龙凤石金银桥港宁平原城连科尔滨肥斯尼新乡德马里亚加洛维沙"
_SURNAMES = "王李张刘陈黄徐何高林罗梁宋谢唐许邓曹彭曾赵孙周吴郑冯蒋沈韩杨"
_GIVEN = "伟娜敏洋静明红强磊军霞芳婷丽勇杰超艳涛雷莉倩雪欣浩梅帆宇轩晨佳琪鹏飞龙云晓文建国平东海"
SIGNS = tuple(dict.fromkeys(_CITY_SIGNS + _SURNAMES + _GIVEN))
"""The signs that names of Chinese cities and people are made of."""
_WHO_ZH = ("我", "你", "他", "她", "我们", "他们", "妈妈", "老师", "小狗", "老板", "邻居", "客人")
_WHEN_ZH = ("今天", "明天", "昨天", "晚上", "早上", "周末", "下午", "刚才", "马上", "")
_DO_ZH = ("买", "看", "写", "做", "修", "洗", "找", "卖", "送", "拿", "带", "画", "检查", "准备", "打扫", "寄")
_WHAT_ZH = ("书", "花", "牛奶", "面包", "钥匙", "报告", "房间", "车", "窗户", "蛋糕", "照片", "礼物", "衣服", "鱼", "茶", "电脑", "信", "苹果", "雨伞", "作业")
_WORDS = (
    "red", "green", "blue", "house", "garden", "river", "mountain", "summer", "winter", "window", "table", "paper", "music",
    "bread", "coffee", "apple", "train", "ship", "bridge", "market", "school", "forest", "island", "engine", "number",
    "light", "water", "stone", "cloud", "story", "letter", "travel", "north", "silver", "simple", "quiet", "open", "early",
    "old", "new", "small", "large", "first", "last", "green tea", "road", "box", "key", "bird", "horse", "planet", "winter",
    "chair", "candle", "basket", "doctor", "kitten", "lemon", "ocean", "pencil", "queen", "rabbit", "shadow", "tiger", "uncle",
    "valley", "wagon", "yellow", "zebra", "annual", "budget", "client", "design", "error", "final", "growth", "health", "invoice",
    "journey", "kingdom", "library", "machine", "network", "office", "party", "quality", "recipe", "science", "theory", "update",
    "village", "weekend", "young", "broken", "careful", "deep", "empty", "free", "gentle", "hungry", "long", "modern", "narrow",
    "plain", "quick", "round", "sweet", "tall", "useful", "warm", "bake", "carry", "drive", "finish", "give", "help", "jump",
    "keep", "learn", "move", "order", "paint", "read", "sing", "teach", "visit", "wait", "about", "after", "because", "before",
    "every", "from", "into", "never", "often", "over", "the", "their", "under", "with", "without", "your", "of",
)
_ROOMS = ("kitchen", "bedroom", "bathroom", "living room", "hall", "office", "garage", "garden", "cellar", "dining room")
_ROOMS_ZH = ("厨房", "卧室", "客厅", "浴室", "书房", "车库")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "tomorrow", "next monday", "the 5th of may", "the 12th of june", "2026-03-14", "2027-01-09")
_DAYS_ZH = ("星期一", "星期二", "明天", "后天", "下周五", "周末")
_UNITS = (("km", "miles"), ("miles", "km"), ("kg", "pounds"), ("pounds", "kg"), ("metres", "feet"), ("feet", "metres"),
          ("inches", "cm"), ("cm", "inches"), ("litres", "gallons"), ("gallons", "litres"), ("celsius", "fahrenheit"),
          ("fahrenheit", "celsius"), ("hours", "minutes"), ("minutes", "seconds"), ("grams", "ounces"), ("ounces", "grams"),
          ("knots", "km/h"), ("acres", "hectares"), ("days", "hours"), ("tonnes", "kg"))
_UNITS_ZH = (("公里", "英里"), ("公斤", "磅"), ("米", "英尺"), ("升", "加仑"), ("摄氏度", "华氏度"), ("小时", "分钟"))
_MONEY = ("USD", "EUR", "GBP", "JPY", "CNY", "CHF", "CAD", "AUD", "INR", "KRW", "SEK", "BRL", "MXN", "PLN", "dollars", "euros", "yen", "pounds", "francs")
_MONEY_ZH = ("美元", "欧元", "日元", "英镑", "人民币", "港币")
_LANGUAGES = ("French", "German", "Spanish", "Italian", "Chinese", "Japanese", "Korean", "Dutch", "Polish", "Russian", "Greek", "Turkish", "Arabic", "Hindi", "Swedish", "Latin")
_LANGUAGES_ZH = ("英文", "法文", "日文", "德文", "西班牙文")
_SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "clear", "stormy", "snowing", "partly cloudy", "light rain")
_SKIES_ZH = ("晴", "多云", "小雨", "大风", "有雾", "下雪")
_COMMANDS = ("ls", "ls -la", "pwd", "git status", "git log --oneline", "make test", "python main.py", "df -h", "cat notes.txt", "npm install", "uname -a", "date", "cargo build", "grep -r todo src", "echo hello")
_EXTENSIONS = ("py", "txt", "md", "json", "toml", "c", "rs", "js", "csv", "html", "log")
_STARTS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "dr", "gr", "kr", "st", "tr", "sh", "ch", "")
_MIDDLES = ("a", "e", "i", "o", "u", "ai", "ea", "ou", "ie", "y")
_ENDS = ("", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "x", "ck", "sh")

_TOWNS = (
    tuple("Ash Oak Kings Green White Black Nor Sun Spring Stone Mill Cross Wood Lake Red North West East New Hill Bright Fair Clear Rock Elm".split()),
    tuple("ton ville burg field stad grad pur abad ham ford mouth port land haven wick by dale ridge brook side bury gate holm dorf".split()),
)
_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"

VERBS = tuple(
    "rotate blend polish stack paint launch measure scan inspect repair label sort freeze melt fold wrap weigh tag merge split"
    " archive ping mount reset lock unlock sync tune trim dock invite hire greet follow mute rate choose praise remove warn"
    " show open close delete load start stop copy print pause resume clean feed charge connect publish approve reject sign test"
    " deploy install update upload download watch hide collect deliver pack fill drain open rent return reserve cancel confirm".split()
)
NOUNS = tuple(
    "widget panel basket valve lamp crate drone probe engine pump filter mirror sensor shelf robot kiln printer boat rocket"
    " battery cable door gate bridge tower wheel order invoice job task account server machine device report project shipment"
    " claim loan member train bus car bike elevator heater fan oven fridge curtain blind radio screen camera alarm fountain"
    " garden pool fence desk chair book album movie recipe photo document folder list page post comment review survey form"
    " contract letter card badge pass key tool toy plant tree flower bottle cup plate pizza burger coffee sandwich cake brightness"
    " speed humidity channel station queue build branch release backup cluster container".split()
)


def noun_of(random: Random) -> str:
    """A thing, known or made up."""
    return made_word(random) if random.random() < 0.35 else random.choice(NOUNS)


_RUDE = re.compile("shit|fuk|fuck|cunt|nig|fag|dick|tit|cum|nazi|rape")
_HELD = frozenset(name.lower() for name in (*HELD_CITIES, *HELD_PEOPLE))

Draw = Callable[[Random, bool, bool], str]
"""Draws a value: whether the conversation is Chinese, and whether the value may only be a held one."""


def word(random: Random, least: int = 1, most: int = 3) -> str:
    """A word that nobody knows."""
    made = ""
    while len(made) < 3 or made in _HELD or _RUDE.search(made):
        count = random.randint(least, most)
        made = "".join(random.choice(_STARTS) + random.choice(_MIDDLES) + random.choice(_ENDS) for _ in range(count))
    return made


def odd(random: Random) -> str:
    """Letters that make no syllables."""
    return "".join(random.choice(_VOWELS + _CONSONANTS) for _ in range(random.randint(3, 9)))


def made_word(random: Random) -> str:
    """A word in small letters that nobody knows, of any kind."""
    return odd(random) if random.random() < 0.2 else word(random, 1, 3)


def words(random: Random, least: int, most: int) -> str:
    """Words one behind another, some of them made up."""
    return " ".join(random.choice(_WORDS) if random.random() < 0.75 else word(random) for _ in range(random.randint(least, most)))


def _town(random: Random) -> str:
    """A name of a place that nobody knows."""
    kind = random.random()
    if kind < 0.45:
        name = random.choice(_TOWNS[0]) + random.choice(_TOWNS[1])
    elif kind < 0.85:
        name = word(random, 2, 3).capitalize()
    else:
        name = odd(random).capitalize()
    if random.random() < 0.1:
        name = f"{random.choice(('Port', 'New', 'San', 'Saint', 'Los', 'Fort', 'Bad', 'El'))} {name}"
    return name


def _city(random: Random, zh: bool, held: bool) -> str:
    if zh:
        if held:
            return random.choice(HELD_CITIES_ZH)
        name = random.choice(CITIES_ZH)
        while random.random() < 0.6 or any(held in name for held in HELD_CITIES_ZH):
            name = "".join(random.choice(_CITY_SIGNS) for _ in range(random.choice((2, 2, 2, 3, 3, 4))))
        return name
    if held:
        return random.choice(HELD_CITIES)
    return random.choice(CITIES) if random.random() < 0.35 else _town(random)


def _person(random: Random, zh: bool, held: bool) -> str:
    if zh:
        if held:
            return random.choice(HELD_PEOPLE_ZH)
        name = random.choice(PEOPLE_ZH)
        while random.random() < 0.6 or any(held in name for held in HELD_PEOPLE_ZH):
            name = random.choice(_SURNAMES) + "".join(random.choice(_GIVEN) for _ in range(random.choice((1, 1, 2))))
        return name
    if held:
        return random.choice(HELD_PEOPLE)
    if random.random() < 0.4:
        return random.choice(PEOPLE)
    name = made_word(random).capitalize()
    return f"{name} {made_word(random).capitalize()}" if random.random() < 0.15 else name


def _phrase(random: Random, zh: bool, held: bool) -> str:
    if zh:
        return _said("sentences", random, zh) if random.random() < 0.5 else _sentence_zh(random)
    kind = random.random()
    if kind < 0.4:
        return words(random, 1, 8)
    said = _said("sentences", random, zh)
    return said if kind < 0.85 else _with_a_new_word(said, random)


def _said(name: str, random: Random, zh: bool) -> str:
    """A text of one of the files of sentences, as people write them."""
    return " ".join(say(random.choice(lines_of(f"texts/{name}")[zh]), {}, random).split())


def _with_a_new_word(text: str, random: Random) -> str:
    """The text with a word in it that nobody knows: what is copied is not always what one expects."""
    parts = text.split(" ")
    parts[random.randrange(len(parts))] = made_word(random)
    return " ".join(parts)


def _sentence_zh(random: Random) -> str:
    who, when = random.choice(_WHO_ZH), random.choice(_WHEN_ZH)
    first = who + when if random.random() < 0.5 else when + who
    more = random.choice(("", "", "了", "吗", "和" + random.choice(_WHAT_ZH)))
    return first + random.choice(("", "去", "要", "想", "没")) + random.choice(_DO_ZH) + random.choice(_WHAT_ZH) + more


def _expression(random: Random, zh: bool, held: bool) -> str:
    terms = random.choice((2, 2, 2, 3))
    text = _number(random)
    for _ in range(terms - 1):
        space = random.choice((" ", " ", ""))
        text += f"{space}{random.choice('+-*/')}{space}{_number(random)}"
    return f"({text}) * {random.randint(2, 9)}" if random.random() < 0.08 else text


def _number(random: Random) -> str:
    digits = random.choice((1, 1, 2, 2, 3, 4, 5))
    text = str(random.randrange(10 ** (digits - 1), 10**digits))
    return f"{text}.{random.randint(1, 9)}" if random.random() < 0.1 else text


def _one_of(known: tuple[str, ...], known_zh: tuple[str, ...] = ()) -> Draw:
    return lambda random, zh, held: random.choice(known_zh if zh and known_zh else known)


def _range(low: int, high: int) -> Draw:
    return lambda random, zh, held: str(random.randint(low, high))


def _mostly(name: str, least: int, most: int) -> Draw:
    """Texts of a file, and some of words one behind another."""

    def drawn(random: Random, zh: bool, held: bool) -> str:
        return words(random, least, most) if not zh and random.random() < 0.4 else _said(name, random, zh)

    return drawn


def _task(random: Random, zh: bool, held: bool) -> str:
    if random.random() < 0.6:
        return _said("tasks", random, zh)
    if zh:
        return random.choice(_DO_ZH) + random.choice(_WHAT_ZH)
    return f"{random.choice(('buy', 'call', 'check', 'clean', 'bring', 'visit', 'fix'))} {words(random, 1, 3)}"


def _code(random: Random, zh: bool, held: bool) -> str:
    letters = "".join(random.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(random.randint(1, 3)))
    return letters + random.choice(("", "-")) + str(random.randint(10, 99_999))


def _path(random: Random, zh: bool, held: bool) -> str:
    folders = [random.choice((random.choice(_WORDS).replace(" ", "_"), word(random))) for _ in range(random.randint(1, 3))]
    return random.choice(("", "", "/", "./", "src/")) + "/".join(folders) + "." + random.choice(_EXTENSIONS)


def _command(random: Random, zh: bool, held: bool) -> str:
    if random.random() < 0.6:
        return random.choice(_COMMANDS)
    return f"{random.choice(('cat', 'python', 'rm', 'ls', 'head', 'git add', 'touch', 'wc -l'))} {_path(random, zh, held)}"


def _title(random: Random, zh: bool, held: bool) -> str:
    return words(random, 1, 4).title()


def _label(random: Random, zh: bool, held: bool) -> str:
    made = made_word(random)
    kind = random.random()
    if kind < 0.3:
        return made.capitalize()
    if kind < 0.5:
        return f"{made}{random.choice('-_.')}{random.choice((made_word(random), str(random.randint(1, 99))))}"
    return made


KINDS: dict[str, Draw] = {
    "city": _city,
    "city2": _city,
    "person": _person,
    "phrase": _phrase,
    "expression": _expression,
    "code": _code,
    "path": _path,
    "command": _command,
    "degree": _one_of(("celsius", "fahrenheit")),
    "quantity": lambda random, zh, held: _number(random),
    "number": lambda random, zh, held: str(random.choice((random.randint(0, 99), random.randint(0, 99_999), random.randint(0, 9_999) / 100))),
    "decimal": lambda random, zh, held: f"{random.randint(0, 99_999) / 100:g}",
    "currency": _one_of(_MONEY, _MONEY_ZH),
    "currency2": _one_of(_MONEY, _MONEY_ZH),
    "language": _one_of(_LANGUAGES, _LANGUAGES_ZH),
    "task": _task,
    "time": lambda random, zh, held: f"{random.randint(0, 23):02}:{random.randint(0, 59):02}",
    "room": _one_of(_ROOMS, _ROOMS_ZH),
    "onoff": _one_of(("on", "off")),
    "label": lambda random, zh, held: random.choice((_label, _code, _path, _title))(random, zh, held),
    "minutes": _range(1, 99),
    "degrees_high": _range(100, 280),
    "email": lambda random, zh, held: f"{made_word(random)}{random.choice(('.', '_', '', '-'))}{made_word(random)}@{word(random)}.{random.choice(('com', 'org', 'net', 'io'))}",
    "percent": _range(0, 100),
    "few": _range(1, 12),
    "small": _range(1, 9_999),
    "thousand": _range(10, 19_999),
    "temperature": _range(-20, 42),
    "zero": lambda random, zh, held: random.choice(("0", "0", "1")),
    "subject": _mostly("subjects", 1, 4),
    "title": _title,
    "place": lambda random, zh, held: random.choice(("", "", "The ", "Chez ", "Café ")) + word(random, 1, 3).capitalize(),
    "symbol": lambda random, zh, held: "".join(random.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(random.randint(2, 5))),
    "meeting": _mostly("meetings", 1, 3),
    "day": _one_of(_DAYS, _DAYS_ZH),
    "word": lambda random, zh, held: random.choice(_WORDS).split()[0] if random.random() < 0.4 and not held else made_word(random),
    "sky": _one_of(_SKIES, _SKIES_ZH),
    "site": lambda random, zh, held: f"{word(random)}.{random.choice(('com', 'org', 'net'))}",
    "foreign": lambda random, zh, held: " ".join(word(random) for _ in range(random.randint(1, 4))),
    "phone": lambda random, zh, held: f"{random.choice(('+49 ', '+1 ', '0', '+86 '))}{random.randint(100, 999)} {random.randint(10_000, 9_999_999)}",
    "priority": _one_of(("low", "medium", "high")),
}


def draw(kind: str, random: Random, *, zh: bool = False, held: bool = False) -> str:
    """A value of a kind as text."""
    return KINDS[kind](random, zh, held)


def draw_units(random: Random, *, zh: bool = False) -> tuple[str, str]:
    """A unit and another of the same quantity."""
    return random.choice(_UNITS_ZH if zh else _UNITS)


def draw_cities(random: Random, count: int, *, zh: bool = False, held: bool = False) -> list[str]:
    """Different values of the kind `city`."""
    return draw_several("city", random, count, zh=zh, held=held)


def draw_several(kind: str, random: Random, count: int, *, zh: bool = False, held: bool = False) -> list[str]:
    """Different values of a kind."""
    found: list[str] = []
    while len(found) < count:
        value = draw(kind, random, zh=zh, held=held)
        if value not in found:
            found.append(value)
    return found
