"""Pictures and pages: of a run, of several side by side, of an attack, of an audit, of a network
that really ran.

Only this package imports matplotlib and jinja2, and nothing imports this package until a picture
is asked for.

plots.py       curve, compare, budget, network: each draws into matplotlib axes and returns them;
               network_plot.py draws the network, plot_style.py says how figures look
page.py        a template filled in, escaped, written; tables and pictures for it
numbers.py     how numbers are written
templates/     what the pages say and how they are marked up; report.css how they look
run.py, comparison.py, attack.py, audit.py, deployed.py
               a page each; certificate.py and provenance.py are sections of several,
               audit_findings.py and audit_noise.py are what an audit says
"""
