"""How a report's page looks: one column that a phone can show, light or dark as the reader's device is, nothing from
elsewhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1c1b19; --soft: #6b6760; --line: #e4e0d8;
  --plan: #b9b3a6; --good: #2f7d5b; --told: #b07d1f; --bad: #c2412d; --code: #f3f0e9;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #161514; --card: #1f1e1c; --ink: #ece9e3; --soft: #a19b90; --line: #34312d;
    --plan: #6d675d; --good: #5fbf93; --told: #dfae55; --bad: #ef7f6b; --code: #2a2825;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font: 600 1.9rem/1.2 ui-serif, Georgia, "Times New Roman", serif; margin: .6rem 0 .4rem; text-wrap: balance; }
h2 { font: 600 1.05rem/1.3 ui-serif, Georgia, serif; margin: 2.4rem 0 .8rem; }
p { margin: .4rem 0; }
.soft { color: var(--soft); font-size: .92rem; }
.mark { display: inline-block; padding: .15rem .7rem; border-radius: 99px; font-size: .82rem; font-weight: 600; border: 1.5px solid currentColor; }
.agrees { color: var(--good); } .explained { color: var(--told); } .differs, .no { color: var(--bad); }
.card { --tone: var(--soft); } .tone-agrees { --tone: var(--good); } .tone-explained { --tone: var(--told); } .tone-differs { --tone: var(--bad); }
.lead { font-size: 1.1rem; margin-top: 1rem; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--code); padding: .1em .35em; border-radius: 4px; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; margin: .7rem 0; }
.top { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .2rem 1rem; align-items: baseline; }
.top b, .ratio { font-weight: 600; }
.pair { display: grid; grid-template-columns: 5.2rem 1fr 6.6rem; gap: .15rem .7rem; align-items: center; margin: .35rem 0; font-size: .9rem; }
.pair span:nth-child(3n) { text-align: right; }
.pair .who { color: var(--soft); }
.bar { display: block; height: .62rem; border-radius: 3px; overflow: hidden; background: var(--code); }
.bar i { display: block; height: 100%; background: var(--tone); } .bar i.planned { background: var(--plan); }
.parts { margin: .6rem 0 0; padding: .55rem 0 0; border-top: 1px solid var(--line); font-size: .86rem; }
.part { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .1rem .9rem; margin: .45rem 0; }
.part > span { white-space: nowrap; } .part > span:first-child { flex: 1; } .part > .bars { order: 9; flex: 1 0 100%; }
.part .bar { height: .36rem; border-radius: 2px; margin: 1px 0; }
.why { margin-top: .5rem; padding-left: .8rem; border-left: 3px solid var(--tone, var(--told)); font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .32rem .8rem .32rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
ul { list-style: none; padding: 0; margin: 0; }
li { padding: .5rem 0; border-bottom: 1px solid var(--line); }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 34rem) {
  main { padding-top: 1.4rem; } h1 { font-size: 1.5rem; }
  .pair { grid-template-columns: 4.6rem 1fr 5.8rem; gap: .15rem .5rem; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
"""
