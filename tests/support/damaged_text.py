"""Good files of every format, and pieces that damage them."""

TEXTS = [
    b'{"criterion": {"name": "size", "poles": ["small", "large"]}, "items": ["Russia", "Chad"], "values": [2, 1]}\n',
    b'{"query": "storms", "items": ["A gale.", "A cake."], "values": [1, 0]}\n',
    b'item,value\nRussia,17.1\nChad,1.3\n"Pe""ru",2\n',
    b"Russia > Chad > Peru\nbest: Russia\n",
    b'{"Russia": 17.1, "best": ["Chad"], "ranks": {"Peru": 2}, "orders": [["Russia", "Chad"]]}',
    b"kind,item,value\npair,Russia,Chad\nrank,Peru,1\n",
    b"name\ttext\nx\tRussia\ny\tChad\n",
    b"[single]\ncausal = 'The {name} of {item} is {slot}'\n",
    b'models = ["default"]\ndatasets = ["everyday"]\nmethods = ["auto"]\nseeds = 3\n[reader]\ndtype = "float32"\n',
    b'"Russia"\n"Chad"\n{"text": "Peru", "n": 1e999}\n',
]
SPLICES = [
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"'", b",", b"\t", b"\r", b"\n", b"{",
    b"}", b"[", b"]", b"[" * 3000, b"null", b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"true", b'""', b":", b">",
    b"=", b"\\", b"\\ud800", "\u2028é🙂".encode(), b"a" * 200_000, b"1, 2", b"item", b"criterion", b"{slot}",
]  # fmt: skip
