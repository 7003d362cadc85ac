"""How a report looks. Colours come in a light and a dark set, each at least 4.5:1 for text against its background."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f7f9; --text: #1c2127; --muted: #59636e; --rule: #d7dce2; --link: #0b5cad;
  --blue: #0068a8; --orange: #b94700; --green: #00795a; --mint: #86c9b4; --grey: #a9b2bc; --pale: #e3e7ec;
  --warning: #fff4e0; --warning-edge: #b94700;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --panel: #1c2228; --text: #e7ebef; --muted: #a3adb8; --rule: #39424c; --link: #79b8ff;
    --blue: #5fb3ee; --orange: #f59a52; --green: #3cc79c; --mint: #22705a; --grey: #66717d; --pale: #2c343c;
    --warning: #33260f; --warning-edge: #f59a52;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .5rem 0; max-width: 50rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.warning { background: var(--warning); border-left: .4rem solid var(--warning-edge); padding: .5rem 1rem; }
.warning p { margin: .3rem 0; max-width: none; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); gap: .7rem 1.5rem; }
.facts dt { color: var(--muted); font-size: .85rem; }
.facts dd { margin: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: bottom;
  overflow-wrap: normal; }
td { white-space: nowrap; }
tbody th { overflow-wrap: break-word; max-width: 16rem; }
th:first-child, td:nth-child(2) { text-align: left; }
thead th { color: var(--muted); font-size: .85rem; font-weight: 600; line-height: 1.25; }
.summary + p { color: var(--muted); font-size: .9rem; }
.pointer { position: sticky; top: 0; z-index: 2; background: var(--page); border-bottom: 1px solid var(--rule);
  display: grid; grid-template-columns: auto 1fr; gap: .2rem 1rem; align-items: center; padding: .5rem 0; }
.pointer label { font-weight: 600; }
.pointer input { width: 100%; min-width: 0; height: 1.75rem; margin: 0; accent-color: var(--blue); }
.pointer output { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 0 1.1rem; min-height: 1.5em;
  font-size: .9rem; font-variant-numeric: tabular-nums; }
.pointer b { font-weight: 600; }
figure { margin: 1.6rem 0 0; }
figcaption p { color: var(--muted); font-size: .9rem; margin: 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: .2rem 0; padding: 0;
  font-size: .9rem; }
.legend li { padding-left: 1.5rem; position: relative; }
.legend li::before { content: ""; position: absolute; left: 0; top: .68em; width: 1.1rem;
  border-top: 3px solid var(--ink); }
.strip .legend li::before, .legend .true::before, .legend .released::before {
  top: .3em; height: .85em; border: 0; background: var(--ink); }
.legend .threshold::before, .legend .epsilon::before { border-top-style: dashed; }
.error, .distance, .spent, .true { --ink: var(--blue); }
.threshold, .epsilon, .released { --ink: var(--orange); }
.release { --ink: var(--green); }
.forecast { --ink: var(--mint); }
.asked { --ink: var(--grey); }
.unasked { --ink: var(--pale); }
.plot { display: grid; grid-template-columns: 3.6rem minmax(0, 1fr); padding-right: .8rem;
  margin-top: .6rem; }
.area { position: relative; height: 11rem; border-left: 1px solid var(--muted); border-bottom: 1px solid var(--muted); }
.strip .area { height: 2.2rem; }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; }
.y, .x { position: relative; color: var(--muted); font-size: .8rem; line-height: 1;
  font-variant-numeric: tabular-nums; }
.y span { position: absolute; right: .45rem; transform: translateY(50%); white-space: nowrap; }
.x { grid-column: 2; height: 1.3rem; }
.x span { position: absolute; top: .4rem; transform: translateX(-50%); white-space: nowrap; }
.unit { grid-column: 2; color: var(--muted); font-size: .8rem; text-align: center; }
svg path { vector-effect: non-scaling-stroke; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .threshold, svg .epsilon { stroke-dasharray: 5 4; stroke-linecap: butt; }
svg .bar { fill: var(--ink); }
.cursor { position: absolute; top: 0; bottom: 0; left: var(--at, 100%); width: 0; pointer-events: none;
  border-left: 1px solid var(--text); opacity: .75; }
.mark { position: absolute; pointer-events: none; border: 2px solid var(--text); outline: 1px solid var(--page); }
.axes { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; margin: .5rem 0; }
.axes label { display: flex; align-items: center; gap: .4rem; font-size: .9rem; max-width: 100%; }
select { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--muted); border-radius: .25rem;
  padding: .2rem .4rem; min-width: 0; max-width: 100%; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 1rem 1.5rem; }
.maps h4 { margin: .3rem 0; font-size: .9rem; text-align: center; }
.maps .plot { grid-template-columns: auto minmax(0, 1fr); }
.maps .y { min-width: 1.6rem; }
.maps .y span { position: absolute; }
.maps .y b { visibility: hidden; display: block; height: 0; font-weight: 400; padding-right: .45rem;
  white-space: nowrap; }
.maps .area { border: 1px solid var(--muted); height: auto; }
canvas { display: block; width: 100%; height: 100%; image-rendering: pixelated; }
.scale { display: flex; align-items: center; gap: .5rem; font-size: .8rem; color: var(--muted); margin: .5rem 0; }
.scale i { flex: 0 1 12rem; height: .8rem;
  background: linear-gradient(90deg, #440154, #3b528b, #21918c, #5ec962, #fde725); }
output.cell { display: block; min-height: 1.5em; font-size: .9rem; font-variant-numeric: tabular-nums; }
@media (max-width: 44rem) {
  .summary thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .summary, .summary tbody, .summary tr, .summary th, .summary td { display: block; width: 100%; text-align: left; }
  .summary tr { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  .summary th, .summary td { border: 0; padding: .1rem 0; }
  .summary td { display: flex; justify-content: space-between; gap: 1rem; }
  .summary td::before { content: attr(data-label); color: var(--muted); }
  .plot { grid-template-columns: 3.1rem minmax(0, 1fr); }
  .area { height: 9rem; }
}
"""
