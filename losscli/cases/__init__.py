"""What is computed: a case, its axes and layouts, and the case of a Model. No torch here."""
