"""Templates and what they are rendered with, for test_chat_template.py, which asks jinja2 itself what
they should give. Also a grammar of random small templates."""

import random

# What the cases below can use.
INPUT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße, 你好 \U0001f600!"},
        {"role": "assistant", "content": "<think>hm</think>Hello", "tool_calls": []},
        {"role": "user", "content": "  two\nlines  "},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "It's \"fine\"",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
    "n": 7,
    "zero": 0,
    "big": 9007199254740993,
    "half": 0.5,
    "third": 3.3333,
    "tiny": 1e-7,
    "huge": 1e22,
    "neg": -3,
    "yes": True,
    "no": False,
    "nothing": None,
    "empty": "",
    "word": "straw-berry",
    "text": "one two  three\ttwo\n",
    "accents": "äÖß é",
    "html": "<b>&\"'</b>",
    "numbers": [3, 1, 2, 2],
    "mixed": [1, "a", None, True, 1.5, [1], {"k": "v"}],
    "names": ["bob", "Alice", "carol", "alice"],
    "nested": {"a": {"b": [10, 20, {"c": "deep"}]}, "items": "own"},
    "people": [
        {"name": "Zoe", "age": 30, "city": "Rome"},
        {"name": "adam", "age": 25, "city": "Oslo"},
        {"name": "Bea", "age": 30, "city": "rome"},
    ],
}

EXPRESSIONS = """
n
n + 1, n - 10, n * 3, n / 2, n // 2, n % 3, n ** 2, -n, +n
-7 // 2, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2, 2 ** -1, 2 ** 0.5
-2 ** 2
-1|abs
1e3, 1.0, 1e16, 1e15, 123456789.125, 0.1 + 0.2, 1e-5, 0.0001, 1_000, 0x1F, 0b101, 0o17
big, big + 1, half, third, tiny, huge, 1e100
1 / 3, 10 / 5, 2 / 3.0
true + 1, true == 1, false < true, 1 == 1.0, "1" == 1, none == false
n == 7, n != 7, n < 8, n <= 7, n > 7, n >= 8, 1 < n < 9, 1 < n > 9
"a" < "b", "a" < "B", [1, 2] < [1, 3], (1, 2) == [1, 2], [1] == [1.0]
n and zero, zero and n, n or zero, zero or empty, not n, not not n, not zero == 0
1 if yes else 2
1 if no else 2
1 if no
(1 if no) is defined
"a" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"] ~ {"a": none}
"a" + "b"
"ab" * 3, 3 * "ab", [1] * 2, "x" * -1, (1, 2) + (3,), [1] + [2]
"a" "b" 'c'
"tab\\tnew\\nquote\\"\\'\\\\ \\x41\\u00e9\\U0001f600 \\q"
'it''s'
[1, 2.0, "x", 'it\\'s', "q\\"q", none, true, [], {}, (), (1,), {"a": 1, 2: [3]}]
"caf\\u00e9", ["caf\\u00e9", "a\\nb", "\\x00\\x7f\\u200b\\u00a0"]
("tuple", 1)
(1)
()
1, 2
{"b": 1, "a": 2}, {"a": 1, "a": 2}
"th" in "other", "x" not in "other", 2 in numbers, "name" in people[0], 5 not in numbers, none in mixed
messages[0].role, messages[0]["role"], messages[-1].content, messages[0]['content'][0]
messages[99], messages[99] is defined, missing, missing is defined, nested.x is undefined
nested.a.b[2].c, nested["a"]["b"][-1]["c"], nested.a.b.1, nested.items, nested["items"]
people[0].nope, people[0].nope|default("d"), missing|default("d"), empty|default("d"), empty|default("d", true)
nothing|default("d"), nothing|d("d", true), missing|default
word[0], word[-1], word[1:4], word[:3], word[-3:], word[::-1], word[::2], word[8:2:-2], word[5:100]
accents[1], accents[-1], accents[1:4], accents[::-1], accents|length
numbers[1:], numbers[:-1], numbers[::-1], numbers[5:], numbers[-2:], numbers[::2]
range(5)|list, range(2, 10, 3)|list, range(5, 0, -2)|list, range(3), range(0, 10, 2)[1:3]|list, range(4)[-1]
range(5)|length, 3 in range(5), range(3)|sum, range(0)|list
messages|length, {}|length, ""|length, missing|length, "äöü"|count
"  x ".strip(), " x ".lstrip() ~ "|", " x ".rstrip() ~ "|", "xxaxx".strip("x"), "abcab".lstrip("ab"), "\\n\\tz\\u00a0".strip()
text.split(), text.split(" "), text.split("two"), text.split(" ", 1), text.rsplit(" ", 1), text.rsplit(), text.split(none, 1)
"".split(), "".split(","), " a  b ".split(" "), " a b ".rsplit(none, 1), "a,b,,c".split(",", 2), "a,b,,c".rsplit(",", 2)
text.splitlines(), "a\\r\\nb\\rc\\n\\nd".splitlines(), "a\\nb\\n".splitlines(true), "".splitlines()
word.startswith("straw"), word.startswith(("x", "st")), word.endswith("y"), word.startswith("raw", 2), word.endswith(("a", "b")), word.startswith("")
word.upper(), "ABC".lower(), "hello wORLD".title(), "hello wORLD".capitalize(), "aBc".swapcase(), "they're bill's".title()
accents.upper()[:2], accents.lower(), "ÉCOLE".capitalize()
word.find("r"), word.rfind("r"), word.find("zz"), word.index("b"), accents.find("é"), word.find("r", 3), word.find("r", 3, 4), word.count("r"), "aaa".count("aa"), "abc".count("")
word.replace("r", "RR"), word.replace("r", "R", 1), "abc".replace("", "-"), word.replace("zz", ""), "abc".replace("", "-", 2)
"-".join(["a", "b"]), "".join(names), ", ".join("abc")
"a-b-c".partition("-"), "a-b-c".rpartition("-"), "abc".partition("-"), "abc".rpartition("-")
"abc".removeprefix("a"), "abc".removesuffix("c"), "abc".removeprefix("x")
"7".zfill(3), "-7".zfill(4), "a".center(5, "*"), "ab".center(5), "a".ljust(3) ~ "|", "a".rjust(3, ".")
"12".isdigit(), "1a".isdigit(), "ab".isalpha(), "ab1".isalnum(), " ".isspace(), "".isspace(), "Ab".istitle(), "AB".isupper(), "ab".islower(), "½".isnumeric(), "a_1".isidentifier(), "é".isascii(), "äß".isalpha(), "²".isdigit(), "²".isdecimal()
"{} {}".format(1, "a"), "{0}{1}{0}".format("a", "b"), "{x}".format(x=1), "{:>5}|{:<5}|{:^5}".format(1, "a", "b"), "{:.2f}".format(third), "{:05d}".format(42), "{{}}".format(), "{!r}".format("a"), "{0[a]}".format({"a": 1}), "{:,}".format(1234567), "{:x}".format(255), "{:%}".format(0.5)
"%s is %d" % ("a", 3), "%5.2f|%-5s|%05d" % (3.14159, "ab", 42), "%s" % "x", "%%", "%x %X %o" % (255, 255, 8), "%(a)s" % {"a": 1}, "%r" % "q", "%e" % 12345.678, "%g" % 0.0001, "%c" % "z", "%+d" % 3, "%s" % [1]
"%s-%s"|format("a", 2), "%(x)s"|format(x=5)
nested.keys()|list, nested.values()|list|length, nested.items() if false else 1, people[0].items()|list, people[0].get("age"), people[0].get("x"), people[0].get("x", 9), people[0].keys()
numbers.index(2), numbers.count(2), (1, 2, 1).count(1)
tools|tojson, tools[0]|tojson(indent=2), tools|tojson(indent=4)
mixed|tojson, none|tojson, true|tojson, 1.5|tojson, "é\\n\\"\\\\\\t\\u0001/"|tojson, html|tojson, {}|tojson, []|tojson(indent=2), {"a": [], "b": {}}|tojson(indent=1)
{"b": 1, "a": [1, 2]}|tojson(sort_keys=true), {"b": 1, "a": 2}|tojson(separators=(",", ":")), "é\\x7f"|tojson(ensure_ascii=true), "İ".lower(), "İx"|capitalize, "\U0001f600"|tojson(ensure_ascii=true), {1: 2, true: 3, none: 4, 1.5: 5}|tojson, (1, 2)|tojson, [1]|tojson(indent="--")
1e22|tojson, 1e-7|tojson, 100.0|tojson, big|tojson
messages|tojson
numbers|sort, numbers|sort(reverse=true), names|sort, names|sort(case_sensitive=true), names|sort(reverse=true), people|sort(attribute="age")|map(attribute="name")|list, people|sort(attribute="age,name")|map(attribute="name")|list, people|sort(attribute="age", reverse=true)|map(attribute="name")|list
numbers|unique|list, names|unique|list, names|unique(case_sensitive=true)|list, people|unique(attribute="age")|map(attribute="name")|list
numbers|reverse|list, "abc"|reverse, numbers|min, numbers|max, names|min, names|max, people|max(attribute="age"), []|min, numbers|sum, people|sum(attribute="age"), numbers|sum(start=10), []|sum
numbers|first, numbers|last, []|first, "abc"|first, "abc"|last, []|last is undefined, {"a": 1}|first
numbers|join, numbers|join(", "), people|join(", ", attribute="name"), "abc"|join("-"), []|join, mixed|join("|")
names|map("upper")|list, names|map("replace", "a", "A")|join(","), people|map(attribute="name")|join, people|map(attribute="x", default="?")|join, numbers|map("string")|list, [" a "]|map("trim")|list, nested.a.b|map("string")|join(";")
numbers|select("odd")|list, numbers|reject("odd")|list, numbers|select("gt", 1)|list, mixed|select|list, mixed|reject("none")|list|length, numbers|select("in", [1, 3])|list, mixed|select("string")|list, numbers|select("equalto", 2)|list
people|selectattr("age", "equalto", 30)|map(attribute="name")|list, people|rejectattr("age", ">", 26)|map(attribute="name")|list, people|selectattr("x")|list, people|selectattr("x", "defined")|list, messages|selectattr("role", "in", ["user"])|list|length, people|rejectattr("x", "undefined")|list
people|groupby("age")|map("first")|list, people|groupby("city")|map(attribute="grouper")|list, people|groupby("city")|map(attribute="list")|map("length")|list
numbers|batch(2)|list, numbers|batch(3, 0)|list, numbers|slice(3)|list, numbers|slice(3, "x")|list, [1, 2, 3, 4, 5, 6, 7]|slice(3)|list
{"b": 1, "a": 2, "C": 0}|dictsort, {"b": 1, "a": 2}|dictsort(by="value"), {"b": 1, "C": 2}|dictsort(true), {"b": 1, "a": 2}|dictsort(reverse=true)
nested.a|items|list, missing|items|list, people[0]|list, "abc"|list, {}|items|list
"42"|int, "42.9"|int, "x"|int, "x"|int(-1), 3.9|int, -3.9|int, true|int, none|int, "0x1f"|int(0, 16), "1f"|int(0, 16), " 7 "|int, "1_000"|int, []|int
"1.5"|float, "x"|float, 3|float, "1e3"|float, none|float(2.5), "inf"|float, true|float
3.14159|round(2), 2.5|round, 3.5|round, 2.675|round(2), 42|round, 1234|round(-2), 1250|round(-2), 2.1|round(0, "ceil"), 2.9|round(0, "floor"), 2.15|round(1, "ceil"), -2.5|round, true|round
-3|abs, 2.5|abs, -2.5|abs, neg|abs
"hello world"|title, "it's-a (test) [x] {y} <z>"|title, "hELLO"|capitalize, "a"|upper, "A"|lower, 1|upper, none|lower, "a"|string, 1|string, none|string, missing|string, 1.0|string
" a "|trim, "xax"|trim("x"), 5|trim, "a b c"|wordcount, "Hello, it's me"|wordcount, "x"|center(5), "abc"|replace("b", "B"), "aaa"|replace("a", "b", 2), 121|replace(1, "x")
"a\\nb\\n\\nc"|indent, "a\\nb\\n\\nc"|indent(2, true), "a\\n\\nb"|indent(2, blank=true), "a\\nb"|indent("> "), ""|indent, "a\\nb\\n"|indent(width=1, first=true)
html|escape, html|e, html|safe, html|e|e, html|forceescape, ("<"|safe) + "<", "<"|e + "<", ("<"|safe) ~ "<", ("%s"|safe) % "x"
"foo bar baz qux"|truncate(9), "foo bar baz qux"|truncate(9, true), "foo bar"|truncate(11), "foo bar baz qux"|truncate(11, false, "..", 0)
"a b/ü?&"|urlencode, {"a b": 1, "c": "/"}|urlencode, 13|filesizeformat, 1000000|filesizeformat, 2048|filesizeformat(true), 1|filesizeformat
people[0]|attr("name"), people[0]|attr("keys") is defined, "a"|attr("nope") is undefined
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), n is number, n is integer, half is float, n is float, half is number, yes is number, yes is integer, yes is boolean, n is boolean
word is string, n is string, nested is mapping, numbers is mapping, numbers is iterable, n is iterable, word is iterable, numbers is sequence, nested is sequence, n is sequence, (1, 2) is sequence
none is none, nothing is none, zero is none, missing is none, yes is true, no is false, n is true, 1 is true
n is eq 7, n is equalto 7, n is ne 7, n is gt 5, n is ge(7), n is lt 3, n is le 7, n is lessthan 8, n is greaterthan 8, n is in [7], n is not in [7], n is sameas 7, nothing is sameas none, 7.0 is sameas 7
word is lower, "ABC" is upper, "Abc" is lower, "1" is lower, range is callable, n is callable, namespace is callable, "upper" is filter, "nope" is filter, "odd" is test, "nope" is test, html|safe is escaped, html is escaped
"abc"|int(0, 99), (numbers|map("string"))[0] is defined, 1.2.3 is defined, n is defined and n is not none, n is not defined or yes, not n is defined, (n is odd) == true, n is divisibleby 3 or yes
missing == missing2, missing == none, missing in [1], missing|list, missing|join, missing is iterable, missing or "x", missing ~ "x", [missing], missing is sequence
dict(a=1, b=2), dict({"x": 1}, y=2), dict([("a", 1)]), dict()
namespace(a=1).a, namespace({"a": 2}).a, namespace(a=1).b is defined, namespace(a=1)
cycler("a", "b").next(), joiner("|")(), joiner()() ~ "x"
strftime_now("%Y") == strftime_now("%Y"), strftime_now("%d %b %Y")|length, strftime_now("[%Z%z%%Z]")
[1, 2, 3,], {"a": 1,}, (1, 2,), dict(a=1,)
[[1, 2], [3]]|map("sum")|list, [[3, 1], [2]]|map("sort")|list, [{"a": {"b": 1}}]|map(attribute="a.b")|list, [[1, 2]]|map(attribute=0)|list, [[1, 2]]|map(attribute="1")|list
"abc"|map("upper")|join, "a b"|replace(" ", "")|upper|lower|length
numbers|length > 3 and numbers[0] == 3, (numbers|length) - 1, numbers|length - 1, -numbers|length if false else 0
messages[1:]|map(attribute="role")|join(" "), messages|selectattr("role", "equalto", "user")|map(attribute="content")|map("trim")|join("|")
(messages|first).role, (messages|last)["content"]|trim, messages|map(attribute="content")|select("string")|list|length
"</think>" in messages[2].content, messages[2].content.split("</think>")[-1], messages[2].content.split("</think>")[0].split("<think>")[-1]
"a" if n > 5 else "b" if n > 3 else "c"
("a" if no else "b") ~ "c", "x" ~ ("y" if yes), [1 if no, 2]
n|string|length, n ~ "" is string, (n ~ "") is string
3 in [1, 2, 3] and "x" not in ["y"], not 3 in [1], not (3 in [1])
numbers == [3, 1, 2, 2], nested == nested, {"a": 1, "b": 2} == {"b": 2, "a": 1}, "a" == "a", none == none
true, false, True, False, none, None
loop is defined, accents.title(), "ßa ŉ ﬁ".upper()
range(3)|map("string")|join, range(10)|select("divisibleby", 3)|list, range(1, 4)|reverse|list
people|map("items")|map("list")|list|length, [1, 2]|map("default", 5)|list
""|first is undefined, {"a": 1}.a, {"a": 1}["a"], {"a": {"b": 2}}.a.b, {1: "x"}[1], {(1, 2): "t"}[(1, 2)], {1: "x"}[true], {1.0: "x"}[1]
"x"[0:1], "x"[3:], ""[0:], [][0:]
"😀a"[0], "😀a"[1:], "😀a"|length, "😀a"|reverse, "😀".isprintable()
n|tojson ~ "," ~ word|tojson, 1.0|tojson, -0.0, 0.0 == -0.0
"%d" % 3.7, "%s %s" % (none, true), "%5s|" % "a", "%-5d|" % 3, "%.3s" % "abcdef", "% d" % 5, "%i" % 3
"{:d}".format(true), "{}".format(none), "{:5}|".format(true), "{:e}".format(1.5), "{:g}".format(0.5), "{:+}".format(3), "{:08.3f}".format(3.14159), "{:*^9}".format("x"), "{:>{}}".format("x", 4), "{a.b}".format(a={"b": 1}), "{:b}".format(5), "{:_}".format(10000)
""".strip().split("\n")

# Expressions that must fail. What jinja2 says of an undefined value, we say in its words.
FAILING = """
missing.x
missing["x"]
missing + 1
missing()
missing < 1
-missing
nested.x.y
nested.a.b[9].c
people[0].nope.more
messages[0].content.nope.x
"a" + 1
1 + "a"
[1] + (1,)
"a" * "b"
1 / 0
1 // 0
1 % 0
1.5 % 0
none + 1
1 < "a"
none < 1
[1] < ["a"]
5 in 5
1 in "abc"
n()
n.foo()
"abc".nope()
numbers.append(1)
numbers.pop()
nested.update({"a": 1})
people[0].pop("name")
nested.clear()
"abc".index("z")
numbers.index(99)
numbers|nope
1 is nope
n|length
n|list
n|first
none|items|list
numbers|dictsort
[1, "a"]|sort
["a", "b"]|sum
[1, "a"]|max
missing|dictsort
missing|int
[[1], [1]]|unique|list
{[1]: 2}
word[::0]
word["b":]
nested[1:2]
nothing[0:1]
raise_exception("stop here")
range(1000000)
range(1, 2, 0)
range("a")
dict(1)
namespace(_x=1)
"%d" % "a"
"%s %s" % "a"
"%s" % (1, 2)
"%q" % 1
"{} {}".format(1)
"{x}".format(1)
"{".format()
"{:d}".format("a")
missing|tojson
range(3)|tojson
namespace()|tojson
numbers|map("odd")|list
numbers|select("nope")|list
"a".join([1])
"a".split("")
"abc".startswith(1)
"x"|round
none|abs
numbers|batch
numbers|groupby
joiner(1, 2)
word|replace("a")
word.__class__.mro()
numbers.__len__()
n.__class__.__name__
cycler()
numbers|select("odd")|length
numbers|map("string")|last
dict(a=1, **{"a": 2})
word|truncate(1)
word|indent("a", "b", "c", "d")
""".strip().split("\n")

STATEMENTS = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in numbers %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for x in numbers %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }};{% endfor %}",
    "{% for x in numbers %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(x) }}{{ loop.depth }}{% endfor %}",
    "{% for x in numbers if x > 1 %}{{ loop.index }}:{{ x }}:{{ loop.length }}:{{ loop.last }} {% else %}none{% endfor %}",
    "{% for x in numbers if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}empty{% endfor %}|{% for x in missing %}{{ x }}{% else %}undefined{% endfor %}",
    "{% for k, v in nested.a.b[2].items() %}{{ k }}={{ v }}{% endfor %}{% for k, v in people[0]|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in people[0] %}{{ k }}{% endfor %}{% for c in 'añ😀' %}[{{ c }}]{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i, x in [[1, 2]] %}{{ i }}{{ x }}{% endfor %}",
    "{% for x in numbers %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in numbers %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in numbers %}{% break %}{% else %}E{% endfor %}",
    "{% for x in numbers %}{% for y in numbers %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in numbers %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in numbers recursive %}{{ x }}{% endfor %}",
    "{% for t in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}, {'n': 4}] recursive %}{{ loop.depth }}:{{ t.n }}[{{ loop(t.c) if t.c }}]{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in [1, 2, 3] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}{{ ns }}",
    "{% if n > 9 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}{% if zero %}x{% else %}y{% endif %}{% if empty or nothing %}x{% endif %}",
    "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}{% if no %}{% set r = 1 %}{% endif %}{{ r is defined }}",
    "{% if no %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% for i in [1] %}{{ late is defined }}{% endfor %}{% set late = 1 %}{{ late }}",
    "{% for i in [1] %}{% set n = 5 %}{{ n }}{% endfor %}{{ n }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set v = 'first' %}{% endif %}{{ v }}|{% endfor %}",
    "{% for i in [1, 2] %}{{ v is defined }}{% set v = i %}{% endfor %}",
    "{% for n in [1, 2] %}{{ n }}{% endfor %}{{ n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}",
    "{% set t = 1, 2 %}{{ t }}{% set u = (1,) %}{{ u }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}{% set y | upper | replace('A', 'Z') %}abc{% endset %}{{ y }}",
    "{% set x %}{% for i in numbers %}{{ i }}{% endfor %}{% endset %}[{{ x }}]",
    "{% macro f(a, b=2, c='x') %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ f(1) }}{{ f(1, 5) }}{{ f(1, c=7) }}{{ f(a=0) }}{{ f() }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}{{ f() }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{{ n }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) each(numbers) %}[{{ v }}]{% endcall %}",
    "{% macro f(x) %}{{ x }}{{ n }}{% set n = 9 %}{{ n }}{% endmacro %}{{ f(1) }}{{ n }}",
    "{% macro f() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ f() }}{% set z = 2 %}{{ f() }}",
    "{% for i in [1, 2] %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f(f('x')) }}{{ [1, 2]|map('string')|map('upper')|join }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% with %}{% set k = 1 %}{{ k }}{% endwith %}{{ k is defined }}",
    "{% filter upper %}abc{{ word }}{% endfilter %}{% filter trim | replace('a', 'b') %}  aa {% endfilter %}|",
    "{% generation %}x{{ n }}{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ not }} {% this %}{% endraw %}{# comment {{ x }} #}end",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  after",
    "a\n{% if yes %}\n  b\n{% endif %}\nc\n",
    "a\n  {% if yes %}  \n  b\n  {%- endif %}\nc\n\n",
    "  {{ n }}  \n  {{- n }}\n{{ n -}}  \n  x",
    "x  {%+ if yes %}y{% endif +%}\nz\n   {%+ set q = 1 %}\nw",
    "{# a #}\n   {# b #}\ntext {# c -#}   \n  next\n\t{#- d #} e",
    "\n\n{%- set x = 1 -%}\n\n  {{- x -}}  \n\n",
    "a\r\nb\rc\n{{ '\r\n' }}d",
    "{% print n, word %}{% print 1 %}",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}{{ {'a': {'b': 1}}.a.b }}{{ {} }}",
    "{ {% if yes %}{ {{ n }} }{% endif %} } %} }} #}",
    "{% for x in numbers: %}{{ x }}{% endfor %}{% if yes: %}y{% endif %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set j = joiner(', ') %}{% for x in numbers %}{{ j() }}{{ x }}{% endfor %}",
    "{% for p in people|groupby('age') %}{{ p.grouper }}:{{ p.list|map(attribute='name')|join('/') }};{% endfor %}{% for age, xs in people|groupby('age') %}{{ age }}{{ xs|length }}{% endfor %}",
    "{% for row in numbers|batch(2) %}{{ row }}{% endfor %}{% for x in numbers|reverse %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }},{% endfor %}{% endfor %}",
    "{% for x in numbers|select('odd') %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% set it = numbers|map('string') %}{{ it|list }}{{ it|list }}",
    "{% set q = missing %}{{ q }}{{ q is defined }}{% set w = nothing %}{{ w }}",
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{{ m.role }}{% endfor %}",
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{{ t.function.parameters.properties|items|list }}{% endfor %}{% endif %}",
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}x{% else %}y{% endif %}{% endfor %}",
    "{% for a in numbers %}{% set outer = loop %}{% for b in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for x in nested.a.b %}{% if x is mapping %}{{ x.c }}{% elif x is number %}{{ x }}{% endif %}{% endfor %}",
    "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}{{ n }}{% endcall %}{% endmacro %}{{ b() }}",
    "{% set ns = namespace(f=none) %}{% macro g(x) %}g{{ x }}{% endmacro %}{% set ns.f = g %}{{ ns.f(1) }}",
    "{% set x = 'a' %}{% set y %}{{ x }}{% set x = 'b' %}{{ x }}{% endset %}{{ y }}{{ x }}",
    "{{ n if n }}{{ '' if no else 'e' }}{{ n }}{{ nothing }}{{ yes }}{{ half }}{{ [] }}{{ numbers }}",
    "{{ add_generation_prompt }}{{ documents }}{{ bos_token }}|{{ tools is none }}",
    "{% if 'x' is filter %}{{ 1|x }}{% endif %}ok{{ 2|x if no else 3 }}",
]

FAILING_STATEMENTS = [
    "{% for x in 5 %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% set a, b = [1] %}",
    "{% set n.x = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% for x in numbers %}{{ loop(x) }}{% endfor %}",
    "{% if x %}",
    "{% for x in y %}",
    "{% endif %}",
    "{% nope %}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ [1 }}",
    "{{ 'a }}",
    "{{ a.b. }}",
    "{{ }}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% for true in x %}{% endfor %}",
    "{% if %}{% endif %}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{{ f(a=1, 2) }}",
    "{# never closed",
    "{% raw %} never closed",
    "{% break %}",
    "{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for loop in numbers %}{{ loop }}{% endfor %}",
    "{{ 1 is odd is even }}",
    "{{ a ! b }}",
    "{{ n|nope }}",
    "{{ 'a' 1 }}",
    "{{ ) }}",
    "{{ {'a' 1} }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% call f %}{% endcall %}",
    "{% set x %}{{ 1/0 }}{% endset %}",
    "{{ namespace(1) }}",
    "{%",
    "{{",
    "{% for x in numbers %}{% set loop = 1 %}{% endfor %}",
]


class Grammar:
    """Random small templates; most of them render, and some must fail."""

    NAMES = ["n", "zero", "half", "yes", "nothing", "empty", "word", "numbers", "names", "mixed", "messages",
             "people", "nested", "missing", "accents", "neg", "x", "y"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.loops = 0

    def pick(self, *options):
        return self.random.choice(options)

    def literal(self):
        return self.pick("0", "1", "2", "-1", "3.5", "'ab'", "'a b'", "''", '"é😀"', "none", "true", "false", "[1, 2]",
                         "[]", "{'a': 1}", "(1, 'x')", "'1'")

    def expression(self, depth=3):
        if depth == 0 or self.random.random() < 0.2:
            return self.pick(self.literal(), self.pick(*self.NAMES))
        e = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.random.randrange(13)
        if kind == 0:
            return f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '**2 +')} {e()})"
        if kind == 1:
            return f"({e()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {e()})"
        if kind == 2:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 3:
            return f"(not {e()})"
        if kind == 4:
            return f"({e()} if {e()} else {e()})"
        if kind == 5:
            # A slice of a constant that has none is undefined, as Jinja folds it; of a variable, an error.
            if self.random.random() < 0.4:
                return f"{self.pick(*self.NAMES)}[{self.pick(':2', '1:', '::-1', '-2:', '::2', '5:', ':-1')}]"
            return f"{e()}[{self.pick('0', '-1', '1', repr('a'), repr('role'), '5', e())}]"
        if kind == 6:
            return f"({e()}).{self.pick('role', 'content', 'name', 'a', 'x', 'items')}"
        if kind == 7:
            return f"({e()} is {self.pick('', 'not ')}{self.test()})"
        if kind == 8:
            return f"{self.pick('[', '(')}{e()}, {e()}]".replace("(", "[", 1)
        if kind == 9:
            method = self.pick("upper()", "strip()", "split()", "split('a')", "replace('a', 'b')", "startswith('a')",
                               "endswith(('b', ''))", "find('b')", "title()", "splitlines()", "lstrip('a')", "count('a')",
                               "get('a', 1)", "keys()|list", "items()|list", "index(1)", "join(names)", "isdigit()",
                               "rsplit(' ', 1)", "capitalize()")
            return f"{self.pick('word', 'accents', 'nested', 'numbers', f'({e()})')}.{method}"
        return f"({e()}|{self.filter()})"

    def test(self):
        return self.pick("defined", "none", "string", "number", "mapping", "iterable", "sequence", "odd", "even", "true",
                         "boolean", "integer", "float", "eq 1", "gt 1", "in [1, 2]", "lower", "undefined",
                         "divisibleby 2", "sameas none")

    def filter(self):
        return self.pick("length", "upper", "trim", "string", "int", "float", "list", "first", "last", "join('-')",
                         "join", "tojson", "tojson(indent=2)", "default('d')", "default('d', true)", "reverse|list",
                         "sort", "unique|list", "map('string')|list", "map(attribute='name')|list", "select|list",
                         "select('string')|list", "reject('none')|list", "sum", "min", "max", "abs", "round",
                         "round(1)", "replace('a', 'bb')", "title", "capitalize", "lower", "items|list", "dictsort",
                         "batch(2)|list", "slice(2)|list", "indent(2)", "escape", "wordcount", "count", "e",
                         "selectattr('name')|list", "truncate(9)", "string|length", "urlencode", "center(9)")

    def text(self):
        return self.pick("", " ", "\n", "  \n  ", "text", " a\n", "\n\n", "\t", "é")

    def tag(self, inside):
        return f"{{%{self.pick('', '', '', '-', '+')} {inside} {self.pick('', '', '', '-')}%}}"

    def statement(self, depth):
        if depth == 0:
            return self.text() + self.output()
        kind = self.random.randrange(9)
        body = lambda: self.body(depth - 1)  # noqa: E731
        if kind < 2:
            return self.text() + self.output()
        if kind == 2:
            return self.tag(f"if {self.expression()}") + body() + self.pick("", self.tag("else") + body()) + self.tag("endif")
        if kind == 3:
            over = self.pick("numbers", "names", "messages", "[1, 2, 3]", "word[:3]", "range(3)", self.expression(2))
            test = self.pick("", "", f" if {self.expression(1)}")
            self.loops += 1
            inside = body() + self.pick("", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.nextitem }}", "{{ loop.revindex }}",
                                        "{% if loop.first %}{% continue %}{% endif %}", "{% break %}")
            self.loops -= 1
            return self.tag(f"for x in {over}{test}") + inside + self.pick("", self.tag("else") + body()) + self.tag("endfor")
        if kind == 4:
            return self.tag(f"set {self.pick('x', 'y', 'word', 'n')} = {self.expression()}")
        if kind == 5:
            return self.tag(f"set {self.pick('x', 'y')}{self.pick('', ' | upper', ' | trim')}") + body() + self.tag("endset")
        if kind == 6:
            name = self.pick("f", "g")
            return (self.tag(f"macro {name}(x, y={self.literal()})") + body() + self.tag("endmacro")
                    + f"{{{{ {name}({self.expression(1)}) }}}}")
        if kind == 7:
            return ("{% set ns = namespace(v=0) %}{% for x in numbers %}{% set ns.v = "
                    + self.pick("ns.v + x", "x", self.expression(2)) + " %}{% endfor %}{{ ns.v }}")
        return self.tag(f"filter {self.pick('upper', 'trim', 'indent(2)')}") + body() + self.tag("endfilter")

    def output(self):
        return f"{{{{{self.pick('', '', '-')} {self.expression()} {self.pick('', '', '-')}}}}}"

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 3))) + self.text()

    def template(self):
        return self.body(2)
