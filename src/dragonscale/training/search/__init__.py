"""Every plan that a stack can run, judged and ranked, with the evidence that published runs give."""
