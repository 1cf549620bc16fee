import unittest

from roman import roman


class Roman(unittest.TestCase):
    def test_small(self):
        self.assertEqual(roman(4), "IV")
        self.assertEqual(roman(8), "VIII")

    def test_large(self):
        self.assertEqual(roman(1994), "MCMXCIV")
        self.assertEqual(roman(2026), "MMXXVI")
