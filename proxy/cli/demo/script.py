"""What the demo's user says: a family plans a week at the sea. The answers are the model's own."""

from __future__ import annotations

SYSTEM = (
    "You help a family to plan a trip. Answer the latest message in one short sentence, and do not repeat "
    "yourself."
)

QUESTIONS = (
    "Hello! We are four people and a dog named Biscuit, and we want to spend one week at the sea in June.",
    "Our budget is 1,800 euros for everything, and we must not fly. Is the train a good idea with a dog?",
    "We live in Kassel. The town we like is called Greifswald. What should we know about going there?",
    "My daughter Ida is nine and loves boats. What could she do on a day with good weather?",
    "My son Jonas is fourteen and reads all day. Which quiet place would you suggest to him?",
    "We eat no fish at home, I am allergic to it. What can I order in a town full of fish restaurants?",
    "The house we found is called Villa Anker and costs 95 euros a night. What does that make for seven?",
    "The landlord asks for a deposit of 150 euros. Is that a usual amount for a holiday house?",
    "We arrive on Saturday, June 14. What should we do on the first evening, when everyone is tired?",
    "Please suggest a walk of about an hour that a small dog can manage without trouble.",
    "It may rain on Monday. Tell me one thing that children like to do indoors.",
    "Ida asks whether she can swim in the Baltic Sea in June. How cold is the water then?",
    "We would like to rent bicycles for one day. What must we look at when we choose them?",
    "Jonas would rather stay in bed until noon. How do we plan a day that suits everybody?",
    "There is a boat to the island of Riems at ten in the morning. How early should we be there?",
    "Biscuit is afraid of loud noise. What helps a dog when there are fireworks in the harbour?",
    "Which three things should I not forget when I pack for the beach?",
    "We have a small tent. Would one night on a camp site be fun, or too much work?",
    "My mother wants a postcard from each trip. What could I write to her in one line?",
    "On Wednesday there is a market in the old town. What is good to buy there for a picnic?",
    "Ida lost a tooth this morning! How do we celebrate that on a holiday?",
    "The weather report speaks of strong wind on Thursday. What is a good plan for such a day?",
    "We thought of a museum with ships and maps. How long do children enjoy a museum?",
    "Jonas asks for a book about the sea. What kind of story would you choose for him?",
    "I want to take photographs at sunrise. When should I get up in the middle of June?",
    "The bakery opens at seven. What breakfast can we make with fresh rolls and little else?",
    "How much water does a small dog need on a warm day?",
    "We spent 640 euros so far. Does that sound like much for half a week?",
    "A friend will visit us on Friday with a baby. What should we cook for everyone?",
    "Remember that I cannot eat fish. Which soup is simple and warm after a day in the wind?",
    "Ida made friends with a girl named Paula. How do they stay in touch after the holiday?",
    "We need a gift for our neighbour, who waters the plants. What do people bring from the sea?",
    "The wheel of a bicycle is flat. What is the first thing to do?",
    "Is it rude to ask the landlord for a second key?",
    "Our train home leaves at 11:40 on Saturday, June 21. When should we clean the house?",
    "Biscuit rolled in seaweed and smells terrible. How do we wash a dog without a bath?",
    "What can four people play together on a rainy evening without any toys?",
    "Jonas wants to see the stars tonight. What do we need for that?",
    "How do we get sand out of a tent and out of shoes?",
    "We have 210 euros left. Should we go out for dinner or save the money?",
    "What would be a good last walk before we leave?",
    "Please suggest one sentence for the guest book of the Villa Anker.",
    "Should we book the same house for next year, or try another place?",
    "What is the name of our dog, and how many people are we?",
)
"""One message a turn; with its answer a turn has some seventy tokens."""
