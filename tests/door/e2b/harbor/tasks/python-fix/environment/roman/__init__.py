"""Numbers as the Romans wrote them."""

TABLE = [(1, "I"), (4, "IV"), (5, "V"), (9, "IX"), (10, "X"), (40, "XL"), (50, "L"), (90, "XC"), (100, "C"), (400, "CD"), (500, "D"), (900, "CM"),
         (1000, "M")]


def roman(number):
    text = ""
    for value, sign in TABLE:
        while number >= value:
            text += sign
            number -= value
    return text
