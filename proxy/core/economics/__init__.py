"""What tokens cost, and whether a cut pays."""
