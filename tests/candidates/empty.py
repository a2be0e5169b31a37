# expect: DOES NOT BUILD nothing_to_judge: a comment
