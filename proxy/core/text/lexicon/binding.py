"""Wordings that make a sentence bind later behaviour, and everyday ones that only look so.

All are searched for in texts in lower case. Each list has first the wordings of languages with spaces between
words, then those of languages without.
"""

import re

from proxy.core.text.lexicon.rules import CHANGE, PROHIBITION
from proxy.core.text.lexicon.words import any_of


def _folded(*words: tuple[str, str]) -> re.Pattern[str]:
    return re.compile(any_of(*words))


# FIRM says explicitly what must or must not be. PLAIN states a limit, a preference, or the occasion on which
# something is to be done. STATED only says how things are now. English "don't" and "never" are firm in an
# instruction, not in a report ("I never got it").

_ANSWERING = (
    "worries|problems?|wonder|doubt|idea|way|thanks?|need|rush|pressure|kidding|clue|luck|matter|one|i|it|thats?"
    "|this|you|we|they|he|she|not|there|please|just|sorry|really|still|longer|someone|something|skip"
    "|more questions|no|actually|but|because|im|ive|its|particular|offen[sc]e|big (?:deal|plans)|plans"
    "|answer|response|reply|news|sign|such|biggie|hard feelings"
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
    r"|get my\b|stay (?:out|off|away|clear|polite|calm|below|under|within)\b"
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
        |you are not (?:to|supposed|permitted|authori[sz]ed)|is not to be
        |(?<!\bi )(?<!\bwe )(?<!ve )(?<!has )(?<!as )(?<!ad )never
        |(?:please|pl[sz]|and|but|so|also|then|just|or|you) (?:do not|don['\u2019]?t)
        |(?:please|you|and|but|should|must) always|(?:remember|keep in mind|bear in mind|note)(?: that| to)
        |only (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)
        |(?:nobody|no ?one) (?:else )?(?:may|must|can|should|shall|gets?|is|but|except)
        |muss|müssen|musst|niemals|auf keinen fall|unter keinen umständen|ab (?:jetzt|sofort)
        |von (?:nun|jetzt) an|künftig|höchstens|nicht mehr als|ausschließlich|unbedingt
        |merk(?:e|en sie)? dir|denk(?:e|en sie)? daran|vergiss nicht
        |bitte (?:immer|nie|nur|nicht|kein\w*)
        |d(?:arf(?:st)?|ürfen)\b(?:[^.!?]|\.(?=\w)){0,60}\b(?:nicht|nur|kein\w*|niemand)
        |niemand (?:\w+ )?(?:darf|soll)
        |debes?|deben|nunca|jamás|en ningún caso|bajo ningun\w+|a partir de ahora|de ahora en adelante
        |como máximo|no más de|obligatori\w|nadie (?:más )?(?:puede|debe)|asegúrate|recuerda
        |no olvides|únicamente|por favor,? no
        |do(?:it|is|ivent)|devez|jamais|en aucun cas|sous aucun prétexte|désormais|dorénavant
        |à partir de maintenant|au maximum|pas plus de|obligatoire\w*|assure-toi|assurez-vous
        |rappelle-toi|rappelez-vous|souviens-toi|n['\u2019]oublie\w*|uniquement
        |n(?:e |['\u2019])\w+(?: \w+)? pas""",
        r"""(?:^|[,;:.\u2013-] ?)(?:do not|don['\u2019]?t|always)\b
        |\b(?:remember|keep in mind|bear in mind|note)[,:]|必ず|絶対|決して|てはいけ|てはなら|てはだめ
        |ではいけ|ないでください|しないで|なければなら|今後|これからは|以内に|を超えない|覚えておいて
        |忘れないで|必须|必須|务必|務必|一定要|绝不|絕不|绝对不|絕對不|不要|不得|不许|不許|不可以|切勿
        |请勿|請勿|永远|永遠|只能|从现在|從現在|今后|以后都|以後都|不超过|不超過|不能超过|不能超過
        |最多|记住|記住""",
    ),
)
PLAIN = _folded(
    (
        r"""always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless|until
        |till i|at most|at least|limit(?:ed)? to|limit is|whenever|max\.? \W?\d+|max \w+(?: \w+)? is
        |m(?<=[s\d] m)(?<!thanks m)ax(?=\W*$)|call me (?!back|when|if|at|on|tomorrow|later)|address me
        |refer to (?:\w+ ){1,3}as|taboo|no[- ]go(?:es)?|halal|kosher
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
        |we (?:do not|don['\u2019]?t) (?:eat|drink|use|want)
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
        |minimum|rule|constraint|ever|nobody else|confirm|approv\w+
        |immer|nie|stets|nur|bevorzug\w+|lieber|vermeide\w*|statt|ohne (?:rückfrage|meine|zu)|bevor du
        |wenn du|sobald du|jedes mal|mindestens|maximal|soll(?:st|en|t|te|test|ten|tet)?
        |ich (?:esse|trinke|mag|will|möchte|nehme|fliege) (?:\w+ ){0,2}(?:nicht|kein\w*)
        |ich bin (?:\w+ )?(?:allergisch|vegan|vegetarier\w*|schwanger)
        |siempre|solo|sólo|solamente|presupuesto|plazo|prefiero|prefiere|evita\w*|en lugar de
        |sin (?:preguntar|mi)
        |antes de|cuando|cada vez|al menos|no \w+(?:es|as|ís|éis)|tiene[ns]? que|hay que|debería[ns]?
        |no (?:quiero|como|bebo|uso)|no me gustan?|soy (?:\w+ )?(?:alérgic[oa]|vegan[oa]|vegetarian[oa])
        |toujours|seulement|préfère\w*|évite\w*|au lieu de|plutôt que|sans (?:demander|mon)|avant de
        |quand tu|lorsque|chaque fois|au moins|au plus|il faut|devrai(?:s|t|ent)|devriez
        |je suis (?:\w+ )?(?:allergique|végétarien\w*|végan\w*|vegan\w*)""",
        rf"""^(?:{_NO_THING}|keine?[mnrs]? (?!ahnung|problem|sorge)|nicht\b
        |pas d(?:e |['\u2019])(?!problème|souci)
        |nada de \w|sin (?!duda|embargo)\w|(?:for|in) [^,.;:]{{3,40}}, (?:please )?(?:use|keep|write|reply
        |answer|show|give|put|state|report|include)\b
        |(?:please |pl[sz] |and |also |so |then |but |just )*(?:{_MANNER})
        |(?:if|in case|when|once|as long as|next time) [^.!?]{{3,60}}(?:, (?:then |please )*{_ORDER}
        |,? (?:stop|ask|tell me|say so|leave|abort|roll back|notify|ping|delete|don['\u2019]?t|do not))\b
        |(?:after|before) (?:each|every)\b|next time (?:please )?{_ORDER}\b|without any\b|by no means\b
        |(?:remember|keep in mind|bear in mind) (?:i|i['\u2019]?m|my|we|it['\u2019]?s|no|not)\b
        |nothing (?:over|under|above|below|before|after|with|(?:less|more|later) than)\b
        |nothing [^.!?]{{2,40}} (?:may|must|should)\b|not (?:on|before|after|over|under|without|more|less)\b
        |(?:\w+ )?(?:any|every)thing (?:but|except)\b|{_LIMIT}\S*(?: \w+| if possible)?\W*$
        |(?:i want|we want|we use|i need) [^.!?]{{2,40}}, not (?!sure|yet|really)\w
        |(?:\w+ )?(?:dates|times|prices|amounts|numbers|headings|titles|comments) (?:in|as) [^.!?,]{{2,20}}$)
        |(?:[,;:]| and| so) {_NO_THING}
        |常に|いつも|だけ|べき(?:です|だ)?(?:。|$)|必要があります(?!ね)|アレルギー
        |なしで(?:お願い|書|答|作)|のみ|ようにして|避けて|てほしい|前に|ください|以下|以上|お願いします|始终
        |始終|予算|期限|预算|預算|总是|總是|只(?:用|要|在|需)|仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前
        |[请請](?:用|把|在|先)|不能|不准|别(?!的|人)|應[该該當]|应[该当]|[过過]敏|我不(?:吃|喝|要|想要|喜[欢歡])""",
    ),
)
STATED = _folded(
    CHANGE,
    (
        r"""actually|i meant|not \d+\b(?! ?%)|for (?:all|every|any|future)|my \w+(?: \w+)? (?:is|are)
        |called me|when (?:the|a|an|all|any|no)|we (?:use|call|refer)
        |ab heute|mein\w* \w+ ist|mi \w+ es|m(?:on|a) \w+ est""",
        r"""^(?:when|(?:no|nope|wrong|sorry),? (?:it['\u2019]?s (?!fine|ok|good|not|all|cool)|(?:the|her|his
        |my|our|its) [^.!?]{2,40} (?:is|are))|(?:please |and |also |so |then )?(?:use|keep|write|reply|answer
        |respond|format|include|exclude|send|report|put|end|start|begin|show|give|ensure|limit|follow|treat
        |skip|wait|ask|save|cite|assume))\b
        |私の|我的""",
    ),
)
QUESTION = re.compile(r"[?\uff1f][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")
IDLE = _folded(
    (
        r"""no (?:worries|problems?|wonder|doubt|matter how)|never (?:mind|say never|knew|thought|been)
        |never (?:give up|quit)(?=\W*$|[!.,])
        |(?:do not|don['\u2019]?t) (?:give up|worry|hesitate|sweat it|get me wrong|be (?:afraid|shy|scared
        |sad|daunted|silly|so hard|too hard|a stranger)|get me started|mention it|let it)
        |(?<!you )(?:do not|don['\u2019]?t) (?:know|think)
        |(?:when|because|since|what|where) you (?:do not|don['\u2019]t)
        |must(?:['\u2019]ve| have (?:been|felt|gone|had|taken|made|hurt|forgotten)|-see|-have|-read|-try)
        |(?:that|you|they|he|she) must (?:really )?(?:feel|love|enjoy|be (?:so|really|very|quite|pretty
        |such|hard|nice|tired|proud|happy|kidding|joking))
        |(?:^|it |this |that )must (?:really )?(?:feel|be (?:so|such|really|hard|tough|cold|hot|nice|fun))
        |must feel (?:so|good|great|amazing)|must be (?:really \w+ing|great|awesome|amazing|exciting)
        |there must be (?:some|a way)|i must (?:say|admit|confess)
        |(?:than|best|worst|as|hardly) ever|ever since|(?:have|has|had|['\u2019]ve|did|first \w+) ever
        |(?:best|worst|most) [^.!?]{1,40}\bever|if (?:i|you|we) ever|who knows if [^.!?]{1,20}\bever
        |(?:not|isn['\u2019]t|nearly|almost|have|has|had|was|were|he|she|it|they|as|for) always
        |you always (?:say|said|know|knew|make|find|seem|\w+ed)|always (?:says?|said|tells?)
        |n(?<!are n)(?<!is n)(?<!be n)ever (?:(?!exceed|proceed|need|feed|embed)\w+ed|again|got|had|heard
        |met|came|did|saw|seen|went|told|gave)|(?:he|she|they) never|you never know
        |(?:he|she|it|they|you|i|we)(?:['\u2019]ve| have| had)? only (?:had|got|saw|slept|knew|went|took
        |just|met|makes sense|happens|works|fails|occurs|live once|(?!need)\w+ed)|only (?:kidding|joking)
        |(?:whenever|every ?time|each time) (?:i|we|he|she|they|it) (?!say|ask|write|tell|send|type|mention)
        |(?:is|are|was|am|['\u2019]?[sm]|not) exactly (?:what|how|why|where|the same)|exactly(?=\W*$)
        |exactly (?:my|right)|(?:have|did|do|has) (?:you|he|she|they|it) ever
        |(?:got|get|gets|was|been) banned|(?:it|page|site|app|logs?|docs?) (?:just )?says?[^.!?,]*
        |(?:i|we|it) (?:gets?|got|gives?|shows?|throws?) (?:me )?(?:an?|the|this) (?:\w+ )?(?:error
        |message)[^.!?,]*
        |(?:returns?|returned|gets?|got|shows?|gives?) [^.!?]{1,30} instead of|waited until
        |until (?:yesterday|today|recently)|unless i['\u2019]?m|you should have
        |you don['\u2019]?t have to be
        |(?:make sure|be sure|don['\u2019]?t forget|remember) to (?:enjoy|have fun|relax|rest|smile
        |look after|stay (?:positive|safe|strong)|take (?:it easy|care|some time|breaks?|time)|get enough)
        |remember (?:that|the) (?:time|day|night)|keep (?:your|my) (?:chin|head|fingers|spirits|hopes)
        |you (?:have to|gotta) (?:(?:see|hear) (?:it|this|that)|try|visit|watch|love|be kidding)|if only
        |not on purpose|call me when|it(?:['\u2019]s| is| was| can)\b[^.!?]{1,50} when you
        |(?:was|were|got|been|they|he|she) approved|waiting for (?:\w+ )?approval
        |needs? to be (?:fixed|repaired)|requires? (?:a lot|some)|i['\u2019]?m allowed
        |i (?:do not|don['\u2019]?t) want to (?:bother|talk|hear|sound|think|miss|lose)
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
        |can['\u2019]?t (?:stop|wait|help)|at (?:least|most) (?:i|it|he|she|we|they)|i confirm
        |allow(?:s|ed) (?:me|us)|you should(?=[.,!])
        |you should (?:see|try|come|visit|join|totally|definitely|be proud|give it)
        |there should be (?:some|a way)|should be (?:fine|ok|okay|good|great|enough)
        |(?:thanks?|thank you)[^.!?]{0,20} for all[^.!?]*|(?:be|as soon) as you can
        |immer (?:noch|wieder|mehr|besser)|wie immer|nur (?:mal|so|noch)|keine? (?:ahnung|sorge|problem)
        |sollte (?:klappen|gehen|passen|reichen)|je ne (?:sais|pense|crois|comprends|vois) pas
        |il n['\u2019]y a pas|n['\u2019]est-ce pas|ce n['\u2019]est pas (?:grave|mal|vrai|possible)
        |pas de (?:problème|souci)|toujours pas|no (?:pasa nada|hay (?:problema|de qué)|te preocupes)""",
        r"""^(?:what(?:['\u2019]?s| is| are) (?:the|your|my|an?|it)|where(?: is| are| do| can)|why
        |how (?:do|does|can|come|much|many)|(?:have|did|do|are) you|(?:is|are) there)\b[^.!?;,]*
        |非常に|だけど|だけれど|少しだけ|(?:よろしく|宜しく|今日は)(?:お願い|おねがい)(?:します|致します|いたします)
        |(?:お話|話し|来|教え)てください?ね|ようにして(?:い?ます|い?ました|い?る|い?た)
        |(?:なって|されて)ほしい|ほしいもの|ぜひ[^。]*ください|不要[紧緊]|不要客[气氣]
        |^(?!.*(?:ください|下さい|なさい|こと|ないで|必ず|変更|になりました)).*
        (?:(?<![てで])[ねよ]|かな|ました|でした|かも|もん|という|と思います)[。!\uff01…ー〜]*$""",
    ),
)
"""Everyday wordings that contain one of these and bind nobody; they are left out before the others count."""
PARTS = re.compile(
    r"(?:thought|action|observation|command|output|input|result|response|discussion|question|answer|user"
    r"|human|assistant|system|info|debug|traceback|example|expected|actual|fatal|fail(?:ed|ure)?|\w*(?:error|exception|warning))\b"
    r"[^:]{0,4}:",
    re.IGNORECASE,
)
"""Labels with which agents and logs mark what they write."""
