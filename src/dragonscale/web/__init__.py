"""`dscale web`: the whole tool as one page.

A request names a view (`train`, `why`, `chips` …), the fields of that command's question and the panels it wants; the
answer is a stream of messages, one for each panel, with how far it is between them. `answers.py` makes that stream and
knows nothing of HTTP: the server (`server/`, extra `web`) sends the messages as lines of JSON, the static edition calls
the same function in the reader's own browser. `views/` lays records out as panels: numbers with their text, their unit
and the name of their derivation, so that the page (`page/`) draws and computes nothing.
"""
