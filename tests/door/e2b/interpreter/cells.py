"""The cells that both code-interpreter packages run; plot.mjs reads them from what this prints."""
import json

PLOT = """
import matplotlib.pyplot as plt
import numpy as np
x = np.linspace(0, 4 * np.pi, 400)
fig, ax = plt.subplots(figsize=(7, 4))
ax.plot(x, np.sin(x), label="sin")
ax.plot(x, np.sin(x) * np.exp(-x / 6), label="sin, fading")
ax.fill_between(x, 0, np.sin(x) * np.exp(-x / 6), alpha=0.2, color="tab:orange")
ax.set_title("Drawn in a sandbox")
ax.set_xlabel("x")
ax.set_ylabel("y")
ax.legend()
plt.show()
"""
BARS = """
import matplotlib.pyplot as plt
plt.figure()
plt.bar(["a", "b", "c"], [1, 3, 2])
plt.title("bars")
plt.show()
"""
TABLE = """
import pandas as pd
pd.DataFrame({"name": ["a", "b"], "value": [1, 2]})
"""

if __name__ == "__main__":
    print(json.dumps({"plot": PLOT, "bars": BARS, "table": TABLE}))
