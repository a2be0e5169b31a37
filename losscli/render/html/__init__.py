"""The report as one HTML page: panels of records, plots in SVG, templates of Jinja2."""
