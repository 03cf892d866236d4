/** Lists to start from. */

/** @type {{title: string, note: string, fields: Record<string, string>}[]} */
export const EXAMPLES = [
  {
    title: "Materials by hardness",
    note: "12 names",
    fields: { items: lines("diamond, steel, glass, wood, rubber, cotton, chalk, granite, wax, iron, clay, foam"), by: "hardness", category: "material" },
  },
  {
    title: "Foods, healthiest first",
    note: "30 names",
    fields: {
      items: lines("broccoli, pizza, apple, candy, rice, lentils, doughnut, salmon, spinach, French fries, oatmeal, cola, walnuts, ice cream, carrots, bacon, yoghurt, cheeseburger, blueberries, potato chips, kale, white bread, chickpeas, milk chocolate, tomato soup, hot dog, green tea, butter, grilled chicken, cotton candy"),
      by: "healthiest",
      category: "food",
    },
  },
  {
    title: "Messages, most urgent first",
    note: "8 short texts",
    fields: {
      items: [
        "The server is down and no customer can log in. Please call me now.",
        "Just a thought: we could repaint the meeting room next year.",
        "The invoice is due tomorrow, could you sign it today?",
        "There is a gas leak on the second floor, everybody has to leave.",
        "Here are the slides from last week, in case you missed them.",
        "Could you look at my draft when you have a moment?",
        "The demo starts in ten minutes and the projector does not work.",
        "Happy birthday from all of us!",
      ].join("\n"),
      by: "most urgent",
      category: "message",
    },
  },
  {
    title: "Documents for a query",
    note: "relevance, 6 texts",
    fields: {
      mode: "query",
      query: "how do bees find their way home",
      items: [
        "Honeybees memorise landmarks around the hive and use the position of the sun as a compass on their way back.",
        "Bread dough rises because yeast turns sugar into carbon dioxide, which stretches the gluten.",
        "The waggle dance tells other bees the direction and the distance of flowers.",
        "Many migrating birds sense the magnetic field of the earth and follow it over thousands of kilometres.",
        "A beehive can hold sixty thousand workers, a few hundred drones and one queen.",
        "The central bank left its interest rate unchanged this month.",
      ].join("\n"),
    },
  },
];

/** @param {string} text */
function lines(text) {
  return text.split(", ").join("\n");
}
