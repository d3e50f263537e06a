"""Wordings that make a sentence bind later behaviour, and everyday ones that only look so.

All are searched for in texts in lower case. Those of other languages than English are in
:mod:`proxy.core.text.lexicon.binding_foreign`. Each list has first what is searched for as whole words.
"""

import re

from proxy.core.text.lexicon import binding_foreign as foreign
from proxy.core.text.lexicon.patterns import any_of
from proxy.core.text.lexicon.rules import CHANGE, PROHIBITION


def _folded(*words: tuple[str, str]) -> re.Pattern[str]:
    return re.compile(any_of(*words))


# FIRM says explicitly what must or must not be. PLAIN states a limit, a preference, or the occasion on which
# something is to be done. STATED only says how things are now. English "don't" and "never" are firm in an
# instruction, not in a report ("I never got it").

_ANSWERING = (
    "worries|problems?|wonder|doubt|idea|way|thanks?|need|rush|pressure|kidding|clue|luck|matter|one|i|it|thats?"
    "|this|you|we|they|he|she|not|there|please|just|sorry|really|still|longer|someone|something|skip"
    "|more questions|no|actually|but|because|im|ive|its|particular|offen[sc]e|big (?:deal|plans)|biggie"
    "|(?:plans|answer|response|reply|news|sign) (?:from|so far|for the)|such file|hard feelings"
)
"""Words after "no" that make it an answer or a phrase."""
_NO_THING = rf"no (?!(?:{_ANSWERING})\b)[a-z]\w*\b(?! (?:is|are|was|were|has|have|yet)\b)"

_ORDER = (
    "(?:answer|ask|back up|cc|check|cite|comment|commit|confirm|deploy|double-?check|end|explain|format"
    "|give up|include|keep|log|mask|output|push|rebase|redact|remind|reply|report|respond|review|run|save"
    "|send|show|sign|speak|squash|start|stop|talk|tell|test|text|update|use|verify|wait|warn|write)"
)
"""Verbs with which people tell an assistant or agent how to work."""
_LIMIT = r"(?:under|below|over|above|beyond|within|up to|(?:less|more|fewer|longer) than) \W?\d"
_MANNER = (
    rf"{_ORDER}\b(?! (?:\w+ ){{0,2}}(?:is|was|are|were|does|did|has|had|fails?|failed)\b)[^.!?]{{0,60}}\b"
    rf"(?:every|each|first(?=\W*$|,| before)|before|after (?!that\b)|not(?! working)|{_LIMIT}\S*)\b"
    r"|(?:answer|comment|explain|format|output|reply|respond|speak|talk|write)(?: to me)?(?: (?!you)\w+)?"
    r" (?:in|as(?! expected)|like)\b"
    r"|use (?!it|this|that|these|the|my|an?\b)\w|keep (?:it|this|them|all|your|the|every\w*)\b|quit \w+ing\b"
    r"|(?:assume|cite|ensure|treat(?! yourself)|hands off|refrain|steer clear)\b|skip (?:the|all|any)\b"
    r"|be (?:\w+ )?(?:brief|concise|terse|succinct|formal|precise|direct|polite|honest)\b"
    r"|get my\b|leave out\b|stay (?:out|off|away|clear|polite|calm|below|under|within)\b"
    r"|try (?:not to|to (?:keep|stay|be)) (?!worry|think|panic|stress)"
)
"""Beginnings of sentences that tell how to do things, rather than what to do once."""

FIRM = _folded(
    PROHIBITION,
    (
        r"""must(?:n['\u2019]t)?|shall not|under no circumstances
        |no(?:t)? (?:more|less|fewer|later|longer) than|from (?:now|here|today) on|going forward
        |whatever you do|on no account|for the rest of|mandatory|at all times|no exceptions?|non-negotiable
        |make sure|be sure to|no matter what|important constraint|(?:you|we) (?:should|may|can) ?not
        |you are not (?:to|supposed|permitted|authori[sz]ed)
        |(?:is|are)(?: not|n['\u2019]t) (?:to be|allowed|permitted)
        |n(?<!\bi n)(?<!\bwe n)(?<!ve n)(?<!as n)(?<!ad n)ever
        |(?:please|pl[sz]|and|but|so|also|then|just|or|you) (?:do not|don['\u2019]?t)
        |(?:please|you|and|but|should|must) always|(?:remember|keep in mind|bear in mind|note)(?: that| to)
        |only (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)
        |(?:nobody|no ?one) (?:else )?(?:may|must|can|should|shall|gets?|is|but|except)""",
        rf"""(?:^|[,;:.\u2013-] ?)(?:do not|don['\u2019]?t|always|{foreign.FORBIDS})\b
        |\b(?:remember|keep in mind|bear in mind|note)[,:]""",
    ),
    foreign.FIRM,
)
PLAIN = _folded(
    (
        r"""always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless|until
        |where possible|one (?!day)\w+ at a time|till i
        |at most|at least|limit(?:ed)? to|limit is|whenever|max\.? \W?\d+|max \w+(?: \w+)? is
        |m(?<=[s\d] m)(?<!thanks m)ax(?=\W*$)|call me (?!back|when|if|at|on|tomorrow|later)|address me
        |refer to (?:\w+ ){1,3}as|no[- ]go(?:es)?|halal|kosher
        |my (?:ok|okay|go-?ahead|permission|consent)|sign(?:s|ed|ing)?[- ]off|all future|stays? between
        |leave (?!me|us|him|her)[^.!?]{2,40} (?:alone|untouched|unchanged|as (?:is|it|they))
        |i (?:said no|told you (?:not )?to|refuse to|insist|expect (?:you|an?|all|every))
        |spend (?:up to|(?:no )?more than|less than|under|below) \W?\d\S*|go (?:over|above|beyond) \W?\d\S*
        |i need (?:all|every|you to (?:be|keep|stay))
        |need (?:it|this|that|them|the \w+) (?:\w+ )?by(?! the way)
        |you(?:['\u2019]ve)? (?:gotta|got to) (?!see|try|be|go|love)
        |you(?:['\u2019]ve| have) (?:got )?\d+ (?:\w+ )?(?:min|sec|hour|day|week|tr|attempt)\w+
        |you can(?:not|['\u2019]?t) (?:use|change|touch|edit|modify|delete|install|share|spend|exceed)
        |we can(?:not|['\u2019]?t) (?:use|change|spend|exceed)
        |we (?:do not|don['\u2019]?t) (?:eat|drink|use|want|touch|change|modify|edit|delete)
        |or (?<!more or )(?:less|more|better|fewer|higher|lower|cheaper|newer|later|earlier)(?=\W*$|[,.])
        |due (?:on|by|at|before|next|today|tomorrow)|above \W?\d\S* needs?|over \W?\d\S* needs?
        |d(?:o|oes)(?: not|n['\u2019]?t) work for me|i['\u2019]?m (?:unavailable|not (?:available|free))
        |short(?:er)? (?:answers|replies|sentences)|brief (?:answers|replies)|concise (?:answers|replies)
        |answers in|replies in|more formal|less (?:chatty|formal|verbose|technical|wordy)
        |important that (?:you|no\w*|all|every|the)|crucial that|essential that
        |it should (?:not|also|support|handle|have|work (?:on|with)|run on)
        |ha(?<!\bi ha)(?<!\bwe ha)(?<!not ha)(?<!n['\u2019]t ha)(?<!ll ha)(?<!ght ha)(?<!uld ha)(?:s
        |ve) to(?! (?:say|admit|go|do with|be some))|you need to(?! (?:and|or)\b|[.,!])
        |th(?:ey|is|at) needs? to|it needs to|every(?:thing|one) needs to|should not|ought not
        |shouldn['\u2019]t|you should|there should|every(?:thing|one) should|the \w+(?: \w+)? should
        |every \w+(?: \w+)? (?:should|needs)|each \w+(?: \w+)? (?:should|needs)
        |should (?:stay|always|never|have (?!been|seen|known|done|gone|said|told|\w+ed))
        |all \w+(?: \w+)? should
        |i (?:do not|don['\u2019]?t|never|cannot|can['\u2019]?t|won['\u2019]?t) (?:\w+ )?(?:want|like|eat
        |drink|use|fly|accept|tolerate)|i can(?:not|['\u2019]?t) have|allergy
        |i(?: a|['\u2019]?)m (?:\w+ )?(?:allergic|intolerant|vegan|vegetarian|diabetic|pregnant
        |colou?r-?blind)|is (?:\w+ )?(?:allergic|vegan|vegetarian|diabetic|co?eliac)
        |we['\u2019]re (?:vegan|vegetarian)s?|every time|each time|before you|after you|when you
        |as soon as you|every (?:repl|answer|response|message|number)\w*
        |any (?:repl|answer|response|message)\w*|in (?:all|your) (?:repl|answer|response|message)\w*
        |stick to|no longer|s(?<!\bto s)(?<!t s)top \w+ing|only|exactly
        |i(?:['\u2019]?d| would) (?:like you|rather|prefer)|i want (?:you|all|every\w*|the)
        |needs? (?:approval|to be)|requires?|required|allowed|cap(?:ped)?|ceiling|deadline|budget|maximum
        |minimum|rule|constraint|ever|nobody else|confirm|approv\w+""",
        rf"""^(?:{_NO_THING}|(?:for|in) [^,.;:]{{3,40}}, (?:please )?(?:use|keep|write|reply
        |answer|show|give|put|state|report|include)\b
        |(?:please |pl[sz] |and |also |so |then |but |just )*(?:{_MANNER})
        |(?:if|in case|when|once|as long as|next time) [^.!?]{{3,60}}(?:, (?:then |please )*{_ORDER}
        |,? (?:stop|ask|tell me|say so|leave|abort|roll back|notify|ping|delete|don['\u2019]?t|do not))\b
        |(?:if|when|once) (?!i\b)[^.,!?]{{3,60}}, (?!(?:all|and|both|but|for|from|i|if|in|it|just|like|of|on
        |or|so|some|that|the|then|there|they|this|to|we|with|you)\b)[a-z]+ (?:it|them|him|her|the|an?|no)\b
        |(?:after|before) (?:each|every)\b|next time (?:please )?{_ORDER}\b|without any\b|by no means\b
        |(?:remember|keep in mind|bear in mind) (?:i|i['\u2019]?m|my|we|it['\u2019]?s|no|not)\b
        |nothing (?:over|under|above|below|before|after|with|(?:less|more|later) than)\b
        |nothing (?:[^.!?]{{2,40}} )?(?:may|must|should)\b
        |not (?:on|before|after|over|under|without|more|less)\b
        |(?:\w+ )?(?:any|every)thing (?:but|except)\b|{_LIMIT}\S*(?: \w+| if possible)?\W*$
        |(?:i want|we want|we use|i need) [^.!?]{{2,40}}, not (?!sure|yet|really)\w
        |(?:\w+ )?(?:dates|times|prices|amounts|numbers|headings|titles|comments) (?:in|as) [^.!?,]{{2,20}}$)
        |(?:[,;:]| and| so) {_NO_THING}""",
    ),
    foreign.PLAIN,
)
STATED = _folded(
    CHANGE,
    (
        r"""actually|i meant|not \d+\b(?! ?%)|for (?:all|every|any|future)|my \w+(?: \w+)? (?:is|are)
        |called me|when (?:the|a|an|all|any|no)|we (?:use|call|refer)""",
        r"""^(?:when|(?:no|nope|wrong|sorry),? (?:it['\u2019]?s (?!fine|ok|good|not|all|cool)|(?:the|her|his
        |my|our|its) [^.!?]{2,40} (?:is|are))|(?:please |and |also |so |then )?(?:use|keep|write|reply|answer
        |respond|format|include|exclude|send|report|put|end|start|begin|show|give|ensure|limit|follow|treat
        |skip|wait|ask|save|cite|assume))\b""",
    ),
    foreign.STATED,
)
QUESTION = re.compile(r"[?\uff1f][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")
IDLE = _folded(
    (
        r"""no (?:worries|problems?|wonder|doubt|matter how)|never (?:mind|say never|knew|thought|been)
        |never (?:give up|quit)(?=\W*$|[!.,])
        |(?:do not|don['\u2019]?t) (?:give up|worry|hesitate|sweat it|get me wrong|be (?:afraid|shy|scared
        |sad|daunted|silly|so hard|too hard|a stranger)|get me started|mention it(?=\W*$)|let it get)
        |(?<!you )(?:do not|don['\u2019]?t) know
        |(?:when|because|since|what|where) you (?:do not|don['\u2019]t)
        |must(?:['\u2019]ve| have (?:been|felt|gone|had|taken|made|hurt|forgotten)|-see|-have|-read|-try)
        |(?:that|you|they|he|she) must (?:really )?(?:feel|love|enjoy|be (?:so|really|very|quite|pretty
        |such|hard|nice|tired|proud|happy|kidding|joking))
        |(?:^|it |this |that )must (?:feel|be (?:(?:so|such)\b|(?:really )?(?:hard|tough|cold|hot|nice|fun
        |great)(?! (?:on|in|at|with|and))))|must feel (?:so|good|great|amazing)
        |must be (?:really \w+ing|awesome|amazing|exciting)
        |there must be (?:some|a way)|i must (?:say|admit|confess)
        |(?:than|best|worst|as|hardly) ever|ever since|(?:have|has|had|['\u2019]ve|did|first \w+) ever
        |(?:best|worst|most) [^.!?]{1,40}\bever|if (?:i|you|we) ever|who knows if [^.!?]{1,20}\bever
        |(?:not|isn['\u2019]t|nearly|almost|have|has|had|was|were|he|she|it|they|as|for) always
        |you always (?:say|said|know|knew|make|find|seem|\w+ed)|always (?:says?|said|tells?)
        |n(?<!are n)(?<!is n)(?<!be n)ever (?:(?!exceed|proceed|need|feed|embed)\w+ed|again(?=\W*$|[!.,])
        |got|had|heard|met|came|did|saw|seen|went|told|gave)|(?:he|she|they) never (?!gets?\b)|you never know
        |(?:he|she|it|they|you|i|we)(?:['\u2019]ve| have| had)? only (?:had|got|saw|slept|knew|went|took
        |just|met|makes sense|happens|works|fails|occurs|live once|(?!need)\w+ed)|only (?:kidding|joking)
        |(?:whenever|every ?time|each time) (?:i|we|he|she|they|it) (?!say|ask|write|tell|send|type|mention)
        (?![^.!?,]*, (?!(?:i|it|my|the|they|we|he|she|you)\b))
        |(?:is|are|was|am|['\u2019]?[sm]|not) exactly (?:what|how|why|where|the same)|exactly(?=\W*$)
        |exactly (?:my|right)|(?:have|did|do|has) (?:you|he|she|they|it) ever
        |(?:got|get|gets|was|been) banned|(?:it|page|site|app|logs?|docs?) (?:just )?says?[^.!?,]*
        |(?:i|we|it) (?:gets?|got|gives?|shows?|throws?) (?:me )?(?:an?|the|this) (?:\w+ )?(?:error
        |message)[^.!?,]*
        |(?:returns?|returned|gets?|got|shows?|gives?) [^.!?]{1,30} instead of|waited until
        |until (?:yesterday|today|recently)|unless i['\u2019]?m|you should have
        |you don['\u2019]?t have to be
        |(?:make sure|be sure|don['\u2019]?t forget|remember) to (?:enjoy|have fun|relax(?! the)|rest|smile
        |look after|stay (?:positive|safe|strong)|take (?:it easy|care of your|some time)|get enough)
        |remember (?:that|the) (?:time|day|night)|keep your (?:chin|head|fingers|spirits|hopes)
        |you (?:have to|gotta) (?:(?:see|hear) (?:it|this|that)|try (?:it|the|this)|love|be kidding)
        |if only (?:i|we|he|she|you|it)
        |not on purpose|call me when|it(?:['\u2019]s| is| was| can)\b[^.!?]{1,50} when you
        |(?:was|were|got|been|they|he|she) approved|waiting for (?:\w+ )?approval
        |needs? to be (?:fixed|repaired)(?=\W*$)|requires? (?:a lot|some)|i['\u2019]?m allowed
        |i (?:do not|don['\u2019]?t) want to (?:bother|talk about it|sound|miss|lose)
        |(?:please |let['\u2019]?s )?confirm(?: (?:that|it|this|my \w+))?(?=\W*$)
        |(?:i|you|we|they|he|she)['\u2019](?:m|re|s|ll|ve|d) (?:\w+ )?always
        |always (?:been|up for|down (?:for|to)|here (?:for|to)|there (?:for|to)|by your side|remember
        |rooting|(?:good|nice|great|happy|lovely) to|a pleasure|love[ds]?)
        |(?:right|just|by|for|fr|until|till|up to|even) now|now (?:and then|that)
        |(?:but|and) now (?:i|it|we)
        |(?:buy|book|do|eat|get|go|leave|proceed|start)\b[^.!?]{0,40} now(?=\W*$)
        |i (?:do not|don['\u2019]t) want [^.!?]{0,40}\b(?:now|yet)
        |(?:i['\u2019]ll|i will|gonna|going to|best to) (?:\w+ )?(?:make|be) sure|keep (?:it |that )?up
        |keep (?:you|ya) (?:\w+ )?(?:posted|updated|in the loop)
        |keep (?:the change|going|on|pushing|trying|smiling|shining|pursuing)
        |(?:a|another|the|this|my) (?:\w+ )?note(?: to)?|i (?:still )?remember|not only|the only
        |can['\u2019]?t (?:stop|wait|help)|at least (?:i|it['\u2019]?s|he|she|we)|i confirm
        |allow(?:s|ed) (?:me|us)|you should(?=[.,!])
        |you should (?:see|try|come|visit|join|totally|definitely|be proud|give it)
        |there should be (?:some|a way)|should be (?:fine|ok|okay|good|great|enough)
        |(?:thanks?|thank you)[^.!?]{0,20} for all[^.!?]*|(?:be|as soon) as you can""",
        r"""^(?:what(?:['\u2019]?s| is| are) (?:the|your|my|an?|it)|where(?: is| are| do| can)|why
        |how (?:do|does|can|come|much|many)|(?:have|did|do|are) you|(?:is|are) there)\b[^.!?;,]*""",
    ),
    foreign.IDLE,
)
"""Everyday wordings that contain one of these and bind nobody; they are left out before the others count."""
PARTS = re.compile(
    r"(?:thought|action|observation|command|output|input|result|response|discussion|question|answer|user"
    r"|human|assistant|system|info|debug|traceback|example|expected|actual|fatal"
    r"|fail(?:ed|ure)?|fehler\w*|erreur|\w*(?:error|exception|warning))\b[^:]{0,4}:|(?:[错錯][误誤]|エラー)[^:]{0,6}:",
    re.IGNORECASE,
)
"""Labels with which agents and logs mark what they write."""
