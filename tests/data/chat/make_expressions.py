#!/usr/bin/env python3
"""Writes expressions.json: small templates and what Jinja2 makes of them.

Run in this folder: python3 make_expressions.py > expressions.json"""
import json
import jinja2
import jinja_env

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>Bob</b>", "name": "bob", "n": 3},
        {"role": "assistant", "content": None, "x": {"y": [1, 2.5, True, None, "q'q"]}},
    ],
    "s": "  Hello, Wörld! straße  ",
    "csv": "a,b,,c",
    "lines": "one\ntwo\r\n\nfour\n",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "one": 1.0,
    "big": 1e22,
    "small": 0.00001,
    "huge": 12345678901234567890,
    "yes": True,
    "nothing": None,
    "empty": [],
    "nums": [3, 1, 2, 10, -4],
    "words": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 1, "a": {"k": "v"}, "C": [1, 2], "items": "shadow", "keys": 5},
    "quote": "it's",
    "both": "it's \"q\"",
    "html": "<a href='x'>&\"",
}

TEMPLATES = r"""
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}
{{ 7 / 2 }} {{ 6 / 2 }} {{ 1 / 3 }} {{ 2.0 * 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 10 ** 15 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }}
{{ f }} {{ one }} {{ big }} {{ small }} {{ huge }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1e300 * 1e10 }} {{ 100000.0 }} {{ 0.0001 }} {{ -0.0 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' == 1 }} {{ none == none }}
{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'ell' in 'hello' }} {{ 'k' in d }} {{ 'b' in d }} {{ not 1 in [2] }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] }}
{{ 'a' * 3 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1, 2) + (3,) }} {{ 3 * 'ab' }}
{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5e1 }}
{{ true and 5 }} {{ 0 or 'x' }} {{ '' or none or 0 }} {{ not '' }} {{ not not 1 }} {{ 1 and 0 or 2 }}
{{ 'yes' if n > 5 else 'no' }} {{ 'x' if false }}|{{ 1 if 0 else 2 if 0 else 3 }}
{{ [1, 'a', 2.5, none, true, {'k': (1,)}] }}
{{ {'a': 1, 2: 'b', none: true} }} {{ {} }} {{ () }} {{ (1,) }} {{ 1, 2 }}
{{ quote }} {{ [quote] }} {{ [both] }} {{ ['tab\t nl\n bs\\ é \x00 \x7f \u200b'] }}
{{ 'a' 'b' "c" }} {{ "\"" }} {{ '\'' }} {{ '\x41\u00e9\U0001F600\101\q' }}
{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ s.strip(' H') }}|{{ 'xxaxx'.strip('x') }}|{{ s | trim }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.strip().capitalize() }} {{ s.swapcase() }} {{ 'ß'.upper() }} {{ 'ÀÉÎõü ÿ'.upper() }} {{ 'ΑΒΓ Привет'.lower() }}
{{ csv.split(',') }} {{ csv.split(',', 1) }} {{ csv.rsplit(',', 1) }} {{ s.split() }} {{ s.split(none, 1) }} {{ s.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ csv.split(',')[-1] }} {{ csv.split(',')[0] }} {{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'abc'.split('x') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a b'.partition(' ') }} {{ 'abc'.partition('x') }} {{ 'a b c'.rpartition(' ') }} {{ 'abc'.rpartition('x') }}
{{ 'abcabc'.replace('b', 'X') }} {{ 'abcabc'.replace('b', 'X', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aaa'.replace('a', '', 2) }} {{ ''.replace('', 'x') }} {{ 'abc' | replace('a', 'b') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.find('c') }} {{ 'abc'.find('x') }} {{ 'aXbX'.rfind('X') }} {{ 'abab'.count('ab') }} {{ 'abc'.index('b') }}
{{ 'wörld'.find('l') }} {{ 'wörld'[1] }} {{ 'wörld'[-2:] }} {{ 'wörld'[::-1] }} {{ 'wörld' | length }} {{ 'wörld'[1:4:2] }} {{ 'abc'[5:] }}|{{ 'abc'[-10:2] }} {{ 'abc'[2:1] }}|
{{ nums[1:3] }} {{ nums[::-1] }} {{ nums[-2:] }} {{ nums[:-1] }} {{ nums[::2] }} {{ nums[4:1:-1] }} {{ nums[10:] }} {{ nums[-1] }}
{{ ','.join(words) }} {{ words | join('-') }} {{ nums | join }} {{ messages | join(', ', attribute='role') }} {{ [1, none, 'x'] | join('|') }}
{{ 'x'.center(5, '*') }}|{{ 'ab'.center(5) }}|{{ 'x'.ljust(3) }}|{{ 'x'.rjust(3, '0') }}|{{ '-5'.zfill(4) }}|{{ 'ab' | center(7) }}|
{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }} {{ 'é'.isascii() }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
{{ '%s is %d and %.2f%% %r %5s|%-5s|%05d %x' % ('a', 3, 2.5, 'q', 'r', 'l', 42, 255) }} {{ '%s' % 5 }} {{ '%(a)s' % {'a': 1} }} {{ '%s-%s' | format(1, 'b') }}
{{ '{} {} {1}'.format('a', 'b') if false }}{{ '{0} {1} {0}'.format('a', 'b') }} {{ '{x} {y[k]} {{}}'.format(x=1, y={'k': 2}) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{!r}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 'q') }}
{{ d.b }} {{ d['a'].k }} {{ d.a['k'] }} {{ d['items'] }} {{ d.items() | list }} {{ d.get('zz') }} {{ d.get('zz', 3) }} {{ d.get('b') }} {{ d['keys'] }} {{ d.values() | list }} {{ d.keys() | list }}
{{ d }} {{ messages[2].x.y }} {{ messages[2].x | string }}
{{ messages[0]['role'] }} {{ messages[-1].role }} {{ messages[1].missing is defined }} {{ messages[1].missing }}| {{ messages[9] is defined }} {{ missing is defined }}
{{ missing | default('x') }} {{ nothing | default('x') }} {{ nothing | default('x', true) }} {{ '' | d('y', boolean=true) }} {{ missing | default }}|
{{ nums | sort }} {{ nums | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}
{{ d | dictsort }} {{ {'b': 2, 'a': 3} | dictsort(by='value') }} {{ {'b': 2, 'A': 3} | dictsort(reverse=true) }} {{ {'b': 1, 'A': 2} | dictsort(true) }}
{{ nums | min }} {{ nums | max }} {{ words | min }} {{ nums | sum }} {{ [1.5, 2] | sum }} {{ messages | selectattr('n') | sum(attribute='n') }} {{ [] | max }}|
{{ words | unique | list }} {{ [1, 1.0, 2] | unique | list }} {{ words | first }} {{ words | last }} {{ [] | first }}| {{ 'abc' | first }} {{ 'abc' | last }} {{ words | reverse | list }} {{ 'abc' | reverse }}
{{ "a B,dc" | sort(reverse=true) }} {{ ["b", "d", "C", "a"] | sort(reverse=true) }} {{ ["b", "d", "f", "h"] | max }} {{ ["h", "b", "d"] | min }} {{ [html | safe, "x"] }} {{ "" % [] }}
{{ yes[1:] }}
{{ n | indent }}
{{ nothing | truncate(3) }}
{{ nums | batch(2) | list }} {{ nums | batch(2, 0) | list }} {{ nums | slice(2) | list }} {{ nums | slice(3, 'f') | list }}
{% for g, l in messages | groupby('role') %}{{ g }}:{{ l | length }} {% endfor %}
{{ messages | map(attribute='role') | join(',') }} {{ words | map('upper') | list }} {{ messages | map(attribute='name', default='-') | list }} {{ words | map('replace', 'p', 'b') | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }} {{ nums | select('odd') | list }} {{ nums | reject('gt', 2) | list }} {{ [0, 1, ''] | select | list }}
{{ messages | selectattr('x.y.0', 'eq', 1) | map(attribute='role') | list }} {{ nothing | selectattr('a') | list }} {{ missing | map('upper') | list }}
{{ nums | select('odd') | length }}
{{ 'yes' if (nums | select('gt', 100)) else 'no' }}
{{ messages | tojson }}
{{ d | tojson(indent=2) }} {{ [] | tojson(indent=4) }} {{ {'a': {}} | tojson(indent=1) }}
{{ {'b': 1, 'a': [1, {'z': 1, 'y': 2}]} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ 'é"\\\n\x01/<>&\x7f' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }}
{{ 1.0 | tojson }} {{ big | tojson }} {{ huge | tojson }} {{ none | tojson }} {{ true | tojson }} {{ (1, 2) | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ missing | tojson }}
{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ ' 7 ' | int }} {{ '3.7' | int }} {{ 3.7 | int }} {{ 'ff' | int(base=16) }} {{ '0x1f' | int(0, 16) }} {{ '1.5' | float }} {{ 'x' | float(0.5) }} {{ none | int }} {{ true | int }} {{ '-3' | int }}
{{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 42 | round }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ 1234 | round(-2) }} {{ -3 | abs }} {{ -2.5 | abs }}
{{ 'a\nb\n\nc' | indent }}| {{ 'a\nb' | indent(2, true) }}| {{ 'a\n\nb\n' | indent(1, blank=true) }}| {{ 'a\nb' | indent('>>') }}| {{ '' | indent(2, first=true) }}|
{{ 'hello world-foo (bar)' | title }} {{ 'HELLO World' | capitalize }} {{ "it's o'neill" | title }} {{ 'a-b c' | wordcount }} {{ 'one two three four' | truncate(12) }} {{ 'one two three four' | truncate(12, true, '..', 0) }} {{ 'short' | truncate(3, leeway=5) }}
{{ html | escape }} {{ html | e | e }} {{ html | forceescape }} {{ (html | safe) + html }} {{ html + ('&' | safe) }} {{ (html | safe) ~ html }} {{ '<%s>' | safe | format('<') }} {{ ('&' | safe).join(['<', '>']) }} {{ (html | safe).replace('a', '<') }} {{ ((html | safe) | upper) + '<' }}
{{ 'a b&c/d?é' | urlencode }}
{{ n is number }} {{ f is float }} {{ n is integer }} {{ true is integer }} {{ true is number }} {{ true is boolean }} {{ 's' is string }} {{ d is mapping }} {{ nums is sequence }} {{ 's' is sequence }} {{ d is iterable }} {{ n is iterable }} {{ nothing is none }} {{ missing is undefined }} {{ huge is integer }} {{ range is callable }} {{ d is sequence }}
{{ 3 is odd }} {{ f is odd }} {{ -3 is odd }} {{ ("<a" | escape) | list }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 3 is eq 3 }} {{ 3 is ne(4) }} {{ 3 is lt 4 }} {{ 3 is in [3] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ none is sameas none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ n is not none and n is defined }}
{{ missing is string }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is mapping }} {{ missing == missing2 }} {{ missing is none }} {{ missing | length }} {{ missing | list }} {{ missing | string }}| {{ missing | upper }}| {{ missing ~ 'x' }} {{ 'a' in missing }} {{ missing == none }} {{ missing | items | list }}
{% for x in missing %}x{% else %}none{% endfor %} {% if missing %}a{% else %}b{% endif %}
{{ missing.x }}
{{ missing['x'] }}
{{ missing + 'x' }}
{{ 'x' + missing }}
{{ missing() }}
{{ missing < 1 }}
{{ -missing }}
{{ missing | int }}
{{ missing | dictsort }}
{{ nothing.x }}|{{ nothing['x'] }}|{{ n.x }}|{{ nums.foo }}|{{ 'a'.foo }}
{{ nothing.x.y }}
{{ nothing + 1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ nothing | length }}
{{ 5 | length }}
{% for x in nothing %}{% endfor %}
{% for x in 5 %}{% endfor %}
{{ 1 in 5 }}
{{ 1 in 'abc' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ nums.append(1) }}
{{ nums.append is defined }} {{ d.update is defined }} {{ nums.index(2) }} {{ nums.count(1) }}
{{ d.pop('b') }}
{{ {[]: 1} }}
{{ d.zz.y }}
{{ 5 | items | list }}
{{ 'x' | nofilter }}
{{ 'x' is notest }}
{% if false %}{{ 'x' | nofilter }}{% endif %}ok
{{ raise_exception('Stop: ' ~ n) }}
{{ strftime_now('%d %b %Y %H:%M %A %j %%') }}
{{ range(5) | list }} {{ range(2, 5) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }}
{{ range(1000000) | list | length }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'q': 1}, r=2) }}
{% set ns = namespace(a=1, l=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.missing is defined }} {{ ns['a'] }}
{% set ns = namespace() %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x }}{{ ns.y }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 10 %}{{ x }} {% endfor %}{{ x }}
{% set d.b = 5 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, (e, g)) = (3, (4, 5)) %}{{ c }}{{ e }}{{ g }}
{% set a, b = [1, 2, 3] %}
{% set x %}  body {{ n }} {% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]
{% if n > 10 %}a{% elif n > 5 %}b{% else %}c{% endif %} {% if not n %}a{% elif false %}b{% endif %}.
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in 'äb' %}{{ c }}.{% endfor %}
{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {{ loop.previtem }},{{ loop.nextitem }} {{ loop.cycle('a', 'b') }};{% endfor %}
{% for x in nums if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}{% for x in nums if x > 100 %}{% else %}none{% endfor %}
{% for x in nums %}{% if x == 2 %}{% break %}{% endif %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for a in [1, 2] %}{% for b in [1, 2, 3] %}{% if b == 2 %}{% break %}{% endif %}{{ a }}{{ b }} {{ loop.depth }}{% endfor %}{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}
{% for x in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}, {'n': 4}] recursive %}{{ x.n }}@{{ loop.depth }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for x in [1,2,3] | reverse %}{{ x }}{% endfor %} {% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in nums %}{% set y = x %}{% endfor %}{{ y is defined }} {{ loop is defined }}
{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(a=1, c=3) }} {{ m() }} {{ m(1, c=a) }} {{ m.name }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro fact(x) %}{% if x <= 1 %}1{% else %}{{ x * (fact(x - 1) | int) }}{% endif %}{% endmacro %}{{ fact(6) }}
{% macro outer() %}[{{ caller() }}]{% endmacro %}{% call outer() %}in {{ n }}{% endcall %}
{% macro outer(l) %}{% for x in l %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% call(v, i) outer(words) %}{{ i }}{{ v }}{% endcall %}
{% macro m() %}{{ late }}{% endmacro %}{% set late = 'set later' %}{{ m() }}
{% macro m(x, y=x ~ '!') %}{{ y }}{% endmacro %}{{ m('a') }}
{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ v }}{% endmacro %}{{ m() }}{{ v }}
{% macro m(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ m(*[1, 2]) }} {{ m(**{'a': 3, 'b': 4}) }} {{ m(1, *[2]) }}
{% filter upper %}abc {{ quote }}{% endfilter %} {% filter replace('a', 'b') | trim %} aaa {% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% raw %}{{ not }} {% a %}{% endraw %} {%- raw -%}  x  {%- endraw %}
{% generation %}gen {{ n }}{% endgeneration %}
{# comment #}a{#- trim -#}  b {# x #}
{{ '{{' }} {{ "%}" }} {{ {'a': {'b': 1}}['a']['b'] }} {{ {'a': {}} }}
{% set cyc = cycler('a', 'b') %}{{ cyc.next() }}{{ cyc.next() }}{{ cyc.next() }}{{ cyc.current }}
{{ [1, 2, 3].0 }} {{ nums.0 }} {{ (1, 2).1 }} {{ messages.0.role }} {{ messages[0].content[:2] }}
{{ n | string + 'x' }} {{ 'a' | upper ~ 'b' | upper }} {{ -1 | abs }} {{ 'a' ~ 1 + 2 ~ 'b' }} {{ 1 ~ 2 * 3 }}
{{ [x for x in y] }}
{{ 1 if }}
{% if %}{% endif %}
{% for x in [1] %}
{% endfor %}
{{ 'abc }}
{{ 1 + }}
{% bogus %}
{% set 5 = 1 %}
{{ a b }}
{% break %}
{{ foo( }}
{{ ) }}
{# never ends
{{ d['a' ] ['k'] . upper ( ) }} {{ 'a'.upper().lower() }} {{ ('a').upper() }} {{ [1,2,][0] }} {{ {'a': 1,}.a }}
{{ namespace(a=1).a }} {{ namespace({'b': 2}).b }} {{ true is not false }} {{ 1 is not in [2] if false else 'skip' }}
{{ (1, 2) is sequence }} {{ (1, 2) == [1, 2] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ 1 == true }} {{ '1' == 1 }} {{ [1, [2]] == [1, [2]] }}
{{ 'a' if none is none and not false or missing else 'b' }}
{{ 'x' | attr('upper') is defined }} {{ d | attr('b') is defined }} {{ words | attr('index') is callable }}
{{ messages[1:] | map(attribute='role') | list }} {{ (messages | length) - 1 }} {{ messages | length - 1 if false else '' }}{{ loop_messages | default([]) | length }}
{{ 'İ' | lower | length }}
{{ " a  b ".split(" ") }} {{ "a--b".split("--") }} {{ 'a b c'.split(' ', maxsplit=1) }} {{ 'a,b'.split(sep=',') }}
{{ 10 | string | length }} {{ true | string }} {{ none | string }} {{ 1.0 | string }} {{ [none] | string }}
{{ 'line1\nline2' }}|{{- ' x ' -}}|{{ 'y' }}
{{ {'a': 1} | items | list }} {{ {'a': 1} | list }} {{ {'a': 1} | length }} {{ {'z': 1, 'a': 2} | sort }} {{ {'a': 1} | first }} {{ {} | last }}|
""".strip("\n").split("\n")

BLOCKS = [
    "a\n  {% if true %}\n    b\n  {% endif %}\n  c\n",
    "a\n  {%- if true -%}\n    b\n  {%- endif -%}\n  c\n\n",
    "a\n  {%+ if true %}\n    b\n  {%+ endif +%}\n  c\n",
    "  {{ 1 }}\n  {{- 2 -}}\n  {{ 3 }}\n\n",
    "x {% if true %}\ny{% endif %} \n z",
    "{% for i in [1,2] %}\n- {{ i }}\n{% endfor %}\nend",
    "{% for i in [1,2] -%}\n  - {{ i }}\n{%- endfor %}\nend\n",
    "a\n\n   {# c #}\n b {# d #} \n {#- e -#} \n f",
    "\r\na\r\nb\rc {% if 1 %}\r\nd{% endif %}\r\n",
    "{% set x = 1 %}\n{% set y = 2 %}\n\n{{ x }}{{ y }}\n",
    "{%- set x = 1 %}\n\n\t {%- set y = 2 -%}\n\n{{ x }}",
    "a {%- raw %}\n {{ x }} {% endraw %}\n b",
    "{% macro m() %}\n  x\n  {% if 1 %}\n  y\n  {% endif %}\n{% endmacro %}\n[{{ m() }}]",
    "\t{% if true %}\t\n\ta\n\t{% endif %}",
    "a{% if true %} {% endif %}b\n{% if true %}\n\n{% endif %}c",
    "{{ 1 }}\n",
    "{{ 1 }}\n\n",
    "\n",
    "",
    "text only\nno tags",
    "{% if true %}a{% endif %}\n\n{% if true %}b{% endif %}\n",
    "{%if true%}a{%endif%}{{1}}{#x#}",
    "{{ 'a\nb' }}\n   {% if 1 %}x{% endif %}",
    "a\u00a0\u3000{%- if 1 %}x{% endif -%}\u00a0b",
]


env = jinja_env.make()
cases = []
for source in TEMPLATES + BLOCKS:
    case = {"template": source}
    try:
        compiled = env.from_string(source)
    except (jinja2.exceptions.TemplateSyntaxError, SyntaxError) as e:
        case["syntax_error"] = str(e)
        cases.append(case)
        continue
    try:
        case["text"] = compiled.render(**CONTEXT)
    except jinja2.exceptions.TemplateError as e:
        case["error"] = type(e).__name__ + ": " + str(e)
    except Exception as e:
        case["error"] = type(e).__name__ + ": " + str(e)
    cases.append(case)
print(json.dumps({"jinja2": jinja2.__version__, "context": CONTEXT, "cases": cases}, indent=1, ensure_ascii=False))
