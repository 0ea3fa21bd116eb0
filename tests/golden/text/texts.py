# SPDX-License-Identifier: Apache-2.0
"""Texts that tokenizers stumble over, written for this project."""

SAMPLES = [
    "",
    " ",
    "   ",
    "\t",
    "\n",
    "\n\n\n",
    "\r\n\r\n",
    " \n \n",
    "a",
    " a",
    "The lamp went out, and nobody in the room said a word.",
    "  two blanks first, two blanks last  ",
    "one\n\ntwo\n \n  three\n\t\n\tfour\n",
    "windows\r\nlines\r\n\r\nend",
    "tabs\t\tand   runs      of blanks     .",
    "trailing blanks then a line end   \nnext   ",
    "I'll say it's what they've done, we'd hope you're sure I'm right, don't we?",
    "I'LL SAY IT'S WHAT THEY'VE DONE, WE'D HOPE YOU'RE SURE I'M RIGHT, DON'T WE?",
    "'tis 'S 's 'sure ''s '\u017f d'accord l'\u00e9t\u00e9 rock'n'roll '' ''' '",
    "7 42 128 1999 10000 123456 1234567 12345678901234567890",
    "3.14159 -2.5e-10 1,000,000.00 0xDEADBEEF 0b1010 192.168.1.254 v2.0.1-rc3 10:30 50% $9.99 #1",
    "\u0661\u0662\u0663\u0664 \u0967\u0968\u0969 \uff11\uff12\uff13 \u00b2\u00b3 \u00bd \u216b \u2460\u2461\u2462 1\u20442",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; } // dot\n\treturn sum;\n}\n",
    "def rows(self, *args, **kwargs):\n    if not args:\n        return None\n    return [x**2 for x in args if x >= 0]\n",
    "SELECT id, name FROM users WHERE age >= 18 AND name LIKE '%an%' ORDER BY id DESC;",
    "<div class=\"a-b_c\"><!-- x --><p>5 &lt; 6</p></div>\n{\"k\": [1, null, true], \"t\": \"a\\nb\"}",
    "camelCase PascalCase HTTPServer parseJSONFile snake_case_name SCREAMING_CASE kebab-case iOS McDonald X1y2Z3",
    "https://example.org/a/b?c=d&e=%20f#g mail@example.org C:\\path\\to\\file /usr/lib64 ~/x ../y",
    "!!! ??? ... --- ___ === *** ### @@@ $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| \\\\\\ /// ~~~ ``` \"\"\"",
    "wait... what?! (really) [no] {maybe} <why> \u2014 because \u2013 of \u201cquotes\u201d and \u2018marks\u2019 \u2026",
    "\u00c9t\u00e9 \u00e0 No\u00ebl, gar\u00e7on na\u00eff; \u00dcber Stra\u00dfe, \u00c4pfel; ma\u00f1ana, \u00bfqu\u00e9? \u00a1s\u00ed! \u0141\u00f3d\u017a \u010de\u0161tina \u0130stanbul",
    "cafe\u0301 noe\u0308l a\u0301\u0323b \u1ec5 Vi\u1ec7t Nam Tie\u0302\u0301ng",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u043d\u0435 \u0441\u0440\u0430\u0437\u0443 \u0441\u0442\u0440\u043e\u0438\u043b\u0430\u0441\u044c. \u042d\u0442\u043e 2-\u0439 \u0434\u0435\u043d\u044c! \u0407\u0436\u0430\u043a \u0454 \u0432 \u043b\u0456\u0441\u0456",
    "\u0397 \u03b8\u03ac\u03bb\u03b1\u03c3\u03c3\u03b1 \u03b5\u03af\u03bd\u03b1\u03b9 \u03bc\u03c0\u03bb\u03b5\u00b7 \u039f\u0394\u039f\u03a3 \u1f04\u03bd\u03b8\u03c1\u03c9\u03c0\u03bf\u03c2",
    "\u0532\u0561\u0580\u0587 \u0541\u0565\u0566 \u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u1c92\u1c90 \u13e3\u13b3\u13a9",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u05de\u05d4 \u05e9\u05dc\u05d5\u05de\u05da? \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064e\u064a\u0652\u0641\u064e \u062d\u0627\u0644\u064f\u0643\u061f \u0641\u0627\u0631\u0633\u06cc",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be \u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0c24\u0c46\u0c32\u0c41\u0c17\u0c41",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e44\u0e21\u0e48\u0e21\u0e35\u0e0a\u0e48\u0e2d\u0e07\u0e27\u0e48\u0e32\u0e07 \u179a\u1794\u179f\u17cb\u1781\u17d2\u1798\u17c2\u179a \u0f56\u0f7c\u0f51\u0f0b\u0f66\u0f90\u0f51",
    "\u6211\u5728\u6751\u5b50\u91cc\u4f4f\u4e8612\u5e74\uff0c\u5929\u6c14\u5f88\u597d\u3002\u4f60\u5462\uff1f\u201c\u597d\u201d\u3001\u300a\u4e66\u300b\uff01",
    "\u6771\u4eac\u306e\u51ac\u306f\u5bd2\u3044\u3067\u3059\u3002\u30ab\u30e1\u30e9\u30fc\u30923\u53f0\u8cb7\u3063\u305f\u3088\u301c\uff01\uff76\uff85 \u3000\u5168\u89d2\u3000\u7a7a\u767d",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. \uc624\ub298 5\uc2dc\uc5d0 \ub9cc\ub098\uc694! \u1112\u1161\u11ab",
    "\U0001f600 \U0001f44d\U0001f3fd \U0001f469\u200d\U0001f680 \U0001f1eb\U0001f1f7 \u2764\ufe0f 1\ufe0f\u20e3 \U0001f636\u200d\U0001f32b\ufe0f ok\U0001f44c done",
    "x\u00a0y\u2003z\u2009w\u202fv\u205fu\u3000t\u1680s\u2028r\u2029q\u0085p \u180e o\u200bn\u2060m\ufeffl",
    "\u01c5ungla \u01c8 \u02b0\u02b1 \u00aa\u00ba \u1d2c\u1d43 \u2c7c \ua727 \ua7b5 \uab53 \U0001d4d0\U0001d4eb\U0001d7d8 \U00010400\U00010428 \U0001e900\U0001e922 \u0561 \u10d0",
    "\u00b5m \u2126 \u212b \u2160 \ufb01nd \uff21\uff22\uff43 \u24d0 \u221a2\u2248 \u2211 \u222b \u2200x\u2203y \u2192 \u20ac5 \u00a33 \u00a51 \u2116 7",
    "nul\x00 bell\x07 esc\x1b[0m del\x7f unit\x1funit\x1c",
    "            deep indent\n\t\t\t\tmixed \t \t blanks\n" + " " * 40 + "x" + "\n" * 7 + "y",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "UPPERCASEONLY lowercaseonly MiXeDcAsE ABCdef abcDEF A1B2c3 \u00c9COLE\u00e9cole \u0416\u0423\u041a\u0436\u0443\u043a",
    "/path/ /x\n// comment /\n/\n-/-\n:/\r\n",
    "<|endoftext|> is text here, and so are <s> </s> <|im_end|> [INST]",
    "e\u0301\u0301\u0301 \u0301 \u0301a 1\u0301 !\u0301",
]

# What small vocabularies are trained on.
PRACTICE = """
The keeper of the lighthouse kept a notebook. In it he wrote the weather, the ships, and the number of oil lamps that were
still burning at dawn: 12, 13, 12, 9. On the first of May 1899 he wrote only "fog". He didn't say why; he wouldn't have known.
It's said that there were three of them there, and that they're the ones who'd seen the ship. We'll never know. I'm sure you've
heard it before! What's the time? Where are the others? "Nobody," said the keeper, "nobody that I know of."
    for (int i = 0; i < count; i++) {
        total += values[i] * weights[i];  // weighted sum
        if (total > limit) return total;
    }
    def total(values, weights):
        return sum(v * w for v, w in zip(values, weights))
int main(void) { printf("%d\\n", total(values, 100)); return 0; }
HTTPServer parseFile openFile readLine LIMIT_VALUE max_value MaxValue 100 200 300 1000 2000 2024 2025 3.14 10.5
Der Leuchtturm steht am Meer. Die Schiffe fahren vorbei, und der W\u00e4rter z\u00e4hlt sie jeden Tag. \u00dcber dem Meer h\u00e4ngt Nebel.
Le gardien \u00e9tait l\u00e0, pr\u00e8s de la mer, et il \u00e9crivait dans son cahier. C'est l'\u00e9t\u00e9; qu'est-ce qu'il y a?
El faro est\u00e1 cerca del mar. \u00bfD\u00f3nde est\u00e1n los barcos? \u00a1All\u00ed est\u00e1n! El guardi\u00e1n los cuenta cada ma\u00f1ana.
\u0421\u043c\u043e\u0442\u0440\u0438\u0442\u0435\u043b\u044c \u043c\u0430\u044f\u043a\u0430 \u043f\u0438\u0441\u0430\u043b \u0432 \u0442\u0435\u0442\u0440\u0430\u0434\u0438. \u041a\u043e\u0440\u0430\u0431\u043b\u0438 \u043f\u0440\u043e\u0445\u043e\u0434\u0438\u043b\u0438 \u043c\u0438\u043c\u043e \u043c\u0430\u044f\u043a\u0430, \u0438 \u043e\u043d \u0441\u0447\u0438\u0442\u0430\u043b \u0438\u0445.
\u706f\u5854\u5728\u6d77\u8fb9\u3002\u5b88\u706f\u5854\u7684\u4eba\u6bcf\u5929\u90fd\u5199\u65e5\u8bb0\uff0c\u4ed6\u770b\u89c1\u5f88\u591a\u8239\u3002\u6d77\u4e0a\u6709\u96fe\u3002
\u706f\u53f0\u306f\u6d77\u306e\u305d\u3070\u306b\u3042\u308a\u307e\u3059\u3002\u706f\u53f0\u5b88\u306f\u6bce\u65e5\u8239\u3092\u6570\u3048\u307e\u3059\u3002
\ub4f1\ub300\ub294 \ubc14\ub2e4 \uc606\uc5d0 \uc788\uc2b5\ub2c8\ub2e4. \ub4f1\ub300\uc9c0\uae30\ub294 \ub9e4\uc77c \ubc30\ub97c \uc149\ub2c8\ub2e4.
\u0627\u0644\u0645\u0646\u0627\u0631\u0629 \u0628\u062c\u0627\u0646\u0628 \u0627\u0644\u0628\u062d\u0631. \u0643\u0627\u0646 \u0627\u0644\u062d\u0627\u0631\u0633 \u064a\u0643\u062a\u0628 \u0641\u064a \u062f\u0641\u062a\u0631\u0647 \u0643\u0644 \u064a\u0648\u0645.
\u0905\u0928\u0941\u0935\u093e\u0926 \u0914\u0930 \u0938\u092e\u0941\u0926\u094d\u0930 \u0915\u093e \u092a\u094d\u0930\u0915\u093e\u0936 \u0938\u094d\u0924\u0902\u092d \u0938\u092e\u0941\u0926\u094d\u0930 \u0915\u0947 \u092a\u093e\u0938 \u0939\u0948\u0964
\U0001f600 \U0001f600 \U0001f44d \u2764\ufe0f ok \U0001f600 -- == >= <= != ... ??? !!! (((  )))  [ ] { }
"""
