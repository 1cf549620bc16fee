"""Runs in every Python kernel before its first cell: charts and tables are also told as data."""
from IPython import get_ipython
from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode


class Chart(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def pop(self, _type, default=None):
        """matplotlib's inline backend, when it comes, has every formatter forget figures: not this one."""
        return default


class Data(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


def chart(figure):
    """None where nothing is known of this kind of chart: the picture is there all the same."""
    from e2b_charts import chart_figure_to_dict
    try:
        return chart_figure_to_dict(figure) or None
    except Exception:  # whatever a figure of somebody else's makes of it
        return None


def data(frame):
    import json
    return {str(name): json.loads(column.to_json(orient="values", date_format="iso")) for name, column in frame.items()}


formatters = get_ipython().display_formatter.formatters
formatters["e2b/chart"] = Chart()
formatters["e2b/chart"].for_type_by_name("matplotlib.figure", "Figure", chart)
formatters["e2b/data"] = Data()
formatters["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", data)
del Chart, Data, chart, data, formatters, BaseFormatter, ObjectName, Unicode
