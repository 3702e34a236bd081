//! Words that prose must not use, each with its replacement.
//!
//! `a|b` stands for either word. Left out, because each has a plain use besides the refused one:
//! "but for", "figure", "hear", "inverse", "level", "look", "mark", "member", "pick", "piece",
//! "place", "say", "source", "turn", "wait for", "way", and "so" before another word.

/// Phrases and what to write instead.
pub(super) const REFUSED: &[(&str, &str)] = &[
    // Idioms.
    ("to be had", "available"),
    ("all the same", "still; the same"),
    ("anew", "again; re-"),
    ("by luck", "by chance; noise alone"),
    ("dear|dearer|dearest|dearly", "expensive"),
    ("heed|heeds|heeded|heeding|unheeded", "respect; follow; read"),
    ("mood|moods", "name the state"),
    ("of ours", "name the owner"),
    ("our own", "hugepilot's; its own"),
    ("is|are|was|were no", "is not; is not a"),
    ("somebody|someone", "name the actor: another process, the user, the kernel"),
    ("nobody", "no process; no caller; name the actor"),
    ("whoever", "name the actor"),
    ("whom", "name the actor"),
    ("so many", "this number of; name the quantity"),
    ("so much", "this amount of; name the quantity"),
    ("so long", "this time; as long as"),
    ("strew|strews|strewn|strewed", "scatter"),
    ("tell|tells", "report; describe; show; notify"),
    ("told", "reported; described; notified; given"),
    ("telling", "reporting; showing"),
    ("the like of", "such as; like"),
    ("and the like", "and similar; name them"),
    ("its likes", "similar ones; name them"),
    ("to the brim", "up to the limit"),
    ("what came of it", "the outcome"),
    ("what is had", "the outcome; the pages in use"),
    // Processes, programs and commands.
    ("process number|numbers", "pid"),
    ("its number", "its pid; its ID; its index"),
    ("programs of others", "other users' programs"),
    ("verb|verbs", "command"),
    // Pages.
    ("page map|maps", "pagemap"),
    ("put|puts|putting on huge pages", "promote"),
    ("make|makes|made|making huge", "promote; collapse"),
    ("what is huge", "huge pages"),
    ("huge again", "re-collapsed"),
    ("flip|flips|flipped|flipping", "re-collapse"),
    ("what huge pages waste", "bloat"),
    ("nothing but zeros", "zero-filled"),
    ("the emptiest", "the highest bloat density"),
    ("page of a pool had", "the pool has no free page"),
    ("pages of the pool", "hugetlb pages; pool pages"),
    ("set aside", "reserve; allocate"),
    ("lent", "surplus; temporary"),
    ("what the tlb maps", "TLB reach"),
    ("memory in all", "footprint; total memory"),
    // Reclaim and demotion.
    ("de-bloat|de-bloats|de-bloated|de-bloating", "debloat"),
    ("give|gives|gave|given|giving back", "reclaim; free; return; restore"),
    ("give|gives|gave|given|giving it|them|memory|pages back", "reclaim; free; return; restore"),
    ("take|takes|took|taken|taking back", "demote; reclaim; restore"),
    ("take|takes|took|taken|taking it|them|memory|pages back", "demote; reclaim; restore"),
    // Stalls.
    ("wait|waits|waited|waiting for memory", "stall on memory"),
    ("where it waits", "where it stalls"),
    // Reading and verifying.
    ("look|looks|looked|looking at", "read; inspect; examine; see"),
    ("look|looks|looked|looking afterwards", "verify"),
    ("look|looks|looked|looking through", "scan"),
    // Policy and outcomes.
    ("passed over", "skipped"),
    ("left out", "excluded; skipped; omitted"),
    ("left alone", "excluded; skipped; unchanged"),
    ("the kernel said|says", "the kernel returned; the outcome"),
    ("refusal|refusals", "error; unsupported"),
    ("rights", "permissions; capabilities"),
    ("fix:", "help:"),
    // Measurements.
    ("in turns", "interleaved"),
    ("least and most", "min–max"),
    ("wander|wanders|wandered", "vary; drift"),
    ("own figure|figures", "progress metric"),
    ("speed-up|speed-ups", "speedup"),
    ("slow-down|slow-downs", "slowdown"),
    // Graphs.
    ("shortest way|ways", "shortest path; path count"),
    ("vertices worked on", "frontier; worklist"),
    ("keeps|keep per vertex", "property array"),
    ("numbers of vertices", "vertex IDs"),
];

/// Phrases that may hold a refused one.
pub(super) const ALLOWED: &[&str] = &[
    "there is|are|was|were no",
    "is|are|was|were no longer|more|less|fewer|later|earlier|smaller|larger|greater|slower|faster",
    "is|are|was|were no worse|better|higher|lower",
    "its number of",
    "tell|tells you",
    "access rights",
];
