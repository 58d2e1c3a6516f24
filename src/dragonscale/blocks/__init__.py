"""Answers as sheets: what is shown, apart from how.

A record lays itself out once, as a `Sheet` of neutral blocks: facts, stacked bars, tables, prose, commands. The
terminal renders it at the width there is, with colour or without (`sheets.terminal`); a notebook or a page
renders the same blocks as HTML (`sheets.html`). No arithmetic is done here beyond the length of bars.
"""
