"""Tables, figures and pages made from Records. Imports no torch."""
