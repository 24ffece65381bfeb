"""The style sheet of a report: light or dark as the reader's system asks, one column on a
telephone, plain on paper.

Figures keep a light card in the dark: their colours were chosen for it.
"""

CSS = """\
:root { --paper: #ffffff; --card: #f6f7f9; --ink: #1f2328; --soft: #5c6670; --line: #dde1e6;
  --good: #0b6b4f; --good-tint: #e2f3ec; --mid: #0a5c91; --mid-tint: #e3eff8; --care: #8a4300; --care-tint: #fdf0e2; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14171a; --card: #1d2126; --ink: #e6e8ea; --soft: #a3acb5;
  --line: #343a41; --good: #7fd6b6; --good-tint: #15352b; --mid: #8cc6ef; --mid-tint: #15304a;
  --care: #f3b57a; --care-tint: #3a2713; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0.2rem 0 0.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 1rem; padding-top: 1.4rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 2rem 0 0.6rem; }
header { margin-bottom: 1.6rem; }
section { margin-top: 2.8rem; }
p { max-width: 46rem; margin: 0 0 0.9rem; }
.kicker, .sub { color: var(--soft); margin: 0; }
.kicker { font-size: 0.85rem; }
.sub { font-size: 1.05rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.9rem; margin: 0 0 1.2rem; }
.tiles > div { background: var(--card); border-radius: 10px; padding: 0.9rem 1rem 1rem; }
.tiles h3 { font-size: 0.85rem; font-weight: 500; color: var(--soft); margin: 0; }
.tiles .value { font-size: 1.22rem; font-weight: 600; line-height: 1.4; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; margin: 0; }
.tiles .more { font-size: 0.82rem; line-height: 1.4; color: var(--soft); margin: 0.15rem 0 0; }
.notice { border-left: 4px solid var(--mid); background: var(--mid-tint); padding: 0.8rem 1.1rem; margin: 1rem 0;
  border-radius: 0 8px 8px 0; }
.notice.alert { border-color: var(--care); background: var(--care-tint); }
.notice p { max-width: none; }
.notice p:last-child, .notice ul:last-child { margin-bottom: 0; }
.notice ul { margin: 0; padding-left: 1.1rem; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.2rem; margin: 1rem 0; align-items: start; }
.pair > * { min-width: 0; }
figure { margin: 0; background: #ffffff; border: 1px solid var(--line); border-radius: 10px; padding: 0.9rem 0.9rem 0.7rem; }
figure svg { display: block; width: 100%; height: auto; max-height: 34rem; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif !important; }
figcaption { color: #5c6670; font-size: 0.85rem; line-height: 1.45; margin-top: 0.5rem; padding: 0 0.2rem; }
dl { display: grid; grid-template-columns: minmax(7.5rem, max-content) minmax(0, 1fr); gap: 0.5rem 1.4rem; margin: 0 0 1rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; max-width: 46rem; }
.table { overflow-x: auto; margin: 1rem 0 1.4rem; }
.table.tall { overflow-y: auto; max-height: 36rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; line-height: 1.4; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.5rem; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 1.1rem 0.45rem 0; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; vertical-align: bottom; position: sticky; top: 0; background: var(--paper); }
tbody th { font-weight: 500; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
thead .n { white-space: normal; max-width: 9.5rem; }
td small, th small { display: block; font-weight: 400; color: var(--soft); font-size: 0.8rem; }
ul.rests { list-style: none; padding: 0; margin: 0.8rem 0 1.2rem; }
ul.rests li { display: grid; grid-template-columns: 5.6rem minmax(0, 1fr); gap: 0.9rem; padding: 0.4rem 0; }
.badge { display: inline-block; font-size: 0.76rem; font-weight: 600; line-height: 1.5; padding: 0.05rem 0.55rem; border-radius: 99px;
  align-self: start; justify-self: start; margin-top: 0.16rem; white-space: nowrap; }
.enforced, .holds { color: var(--good); background: var(--good-tint); }
.derived { color: var(--mid); background: var(--mid-tint); }
.declared, .fails { color: var(--care); background: var(--care-tint); }
.soft { color: var(--soft); }
code, pre { font: 0.86em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--card); border-radius: 8px; padding: 0.9rem 1.1rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 0 1rem; }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 46rem) { main { padding: 1.6rem 1rem 3rem; } h1 { font-size: 1.55rem; }
  .pair { grid-template-columns: minmax(0, 1fr); } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.6rem; }
  .tiles > div { padding: 0.7rem 0.8rem; } .tiles .value { font-size: 1.1rem; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 0.7rem; }
  td:not(.n) { min-width: 13rem; } tbody th:not(.n) { min-width: 6rem; }
  ul.rests li { grid-template-columns: minmax(0, 1fr); gap: 0.2rem; } figure { padding: 0.5rem; } }
@media print { :root { --paper: #ffffff; --card: #f6f7f9; --ink: #000000; --soft: #444444; --line: #cccccc; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } .table, .table.tall { overflow: visible; max-height: none; }
  thead th { position: static; } figure, .notice, .tiles > div, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""
