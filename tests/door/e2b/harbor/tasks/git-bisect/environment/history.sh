# Twenty-four commits; from the thirteenth step on the price is wrong.
printf '#!/bin/sh\necho $(($1 * 10))\n' >price
chmod 755 price
git add price
git commit -q -m "step 0"
for n in $(seq 1 23); do
    echo "$n" >>notes
    [ "$n" != 13 ] || printf '#!/bin/sh\necho $(($1 * 11))\n' >price
    git add -A
    git commit -q -m "step $n"
done
