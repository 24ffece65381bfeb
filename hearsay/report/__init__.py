"""Pictures and pages of a run.

Only this package imports matplotlib, and nothing imports this package until a picture is asked for.

plots.py     curve, compare, budget, network: each draws into matplotlib axes and returns them
html.py      run_report, comparison_report: one self-contained page each
sections.py  what a page says; page.py how it is marked up; words.py how numbers are written;
             style.py how figures look
"""
