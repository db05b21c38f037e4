# One target per benchmark; each ends with one line per figure: figure NAME VALUE UNIT goal GOAL ok|short
