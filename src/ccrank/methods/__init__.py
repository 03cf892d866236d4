"""The methods of ranking: label-free, labelled, probing, prompting, relevance; `registry` lists them all."""
