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
    "|more questions"
)
"""Words after "no" that make it an answer or a phrase."""
_NO_THING = rf"no (?!(?:{_ANSWERING})\b)[a-z]\w*\b(?! (?:is|are|was|were|has|have|yet)\b)"

FIRM = _folded(
    PROHIBITION,
    (
        r"""must(?:n['\u2019]t)?|shall not|under no circumstances|no(?:t)? (?:more|less) than|from now on
        |going forward|for the rest of|mandatory|at all times|no exceptions?|non-negotiable|make sure
        |be sure to|no matter what|important constraint|(?:you|we) (?:should|may|can|are) not
        |is not to be|(?<!\bi )(?<!\bwe )(?<!ve )(?<!has )(?<!as )(?<!ad )never
        |(?:please|and|but|so|also|then|just|or|you) (?:do not|don['\u2019]t)
        |(?:please|you|and|but|should|must) always
        |(?:remember|keep in mind|bear in mind|note)(?: that| to)
        |only (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)
        |(?:nobody|no one) (?:else )?(?:may|must|can|should|shall|gets?|is)
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
        r"""(?:^|[,;:.\u2013-] ?)(?:do not|don['\u2019]t|always)\b
        |\b(?:remember|keep in mind|bear in mind|note)[,:]|必ず|絶対|決して|てはいけ|てはなら|てはだめ
        |ではいけ|ないでください|しないで|なければなら|今後|これからは|以内に|を超えない|覚えておいて
        |忘れないで|必须|必須|务必|務必|一定要|绝不|絕不|绝对不|絕對不|不要|不得|不许|不許|不可以|切勿
        |请勿|請勿|永远|永遠|只能|从现在|從現在|今后|以后都|以後都|不超过|不超過|不能超过|不能超過
        |最多|记住|記住""",
    ),
)
PLAIN = _folded(
    (
        r"""always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless
        |until|at most|at least|limit(?:ed)? to|whenever|call me (?!back|when|if|at|on|tomorrow|later)
        |ha(?<!\bi ha)(?<!\bwe ha)(?<!not ha)(?<!n['\u2019]t ha)(?<!ll ha)(?<!ght ha)(?<!uld ha)(?:s|ve) to
        (?! (?:say|admit|go|do with|be some))
        |you need to(?! (?:and|or)\b|[.,!])|th(?:ey|is|at) needs? to|it needs to|every(?:thing|one) needs to
        |should not|ought not|shouldn['\u2019]t|you should|there should|every(?:thing|one) should
        |the \w+(?: \w+)? should|every \w+ should|each \w+ should|all \w+(?: \w+)? should
        |i (?:do not|don['\u2019]t|never|cannot|can['\u2019]?t|won['\u2019]t) (?:\w+ )?(?:want|like|eat|drink
        |use|fly|accept|tolerate)
        |i(?: am|['\u2019]m) (?:\w+ )?(?:allergic|intolerant|vegan|vegetarian|diabetic|pregnant)|allergy
        |every time|each time|before you|after you|when you|as soon as you
        |(?:in (?:all|every|your|any)|every|any) (?:repl|answer|response|message)\w*|every number
        |stick to|no longer|stop \w+ing|only|exactly|i(?:['\u2019]d| would) (?:like you|rather|prefer)
        |i want (?:you|all|every|the)|needs? (?:approval|to be)|requires?|required|allowed|cap(?:ped)?
        |ceiling|deadline|budget|maximum|minimum|rule|constraint|ever|nobody else|confirm|approv\w+
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
        |answer|show|give|put|state|report|include)\b)|(?:[,;:]| and) {_NO_THING}
        |常に|いつも|だけ|べき(?:です|だ)?(?:。|$)|必要があります(?!ね)|アレルギー
        |なしで(?:お願い|書|答|作)|のみ|ようにして|避けて|てほしい|前に|ください|以下|以上|お願いします|始终
        |始終|予算|期限|预算|預算|总是|總是|只(?:用|要|在|需)|仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前
        |[请請](?:用|把|在|先)|不能|不准|别(?!的|人)|應[该該當]|应[该当]|[过過]敏|我不(?:吃|喝|要|想要|喜[欢歡])""",
    ),
)
STATED = _folded(
    CHANGE,
    (
        r"""actually|for (?:all|every|any|future)|my \w+(?: \w+)? (?:is|are)|called me
        |when (?:the|a|an|all|any|no)
        |we (?:use|call|refer)|ab heute|mein\w* \w+ ist|mi \w+ es|m(?:on|a) \w+ est""",
        r"""^when\b|^(?:please |and |also |so |then )?(?:use|keep|write|reply|answer|respond|format|include
        |exclude|send|report|put|end|start|begin|show|give|ensure|limit|follow|treat|skip|wait|ask|save|cite
        |assume)\b
        |私の|我的""",
    ),
)
QUESTION = re.compile(r"[?\uff1f][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")
IDLE = _folded(
    (
        r"""no (?:worries|problems?|wonder|doubt|matter how)|never (?:mind|say never|knew|thought|been)
        |never (?:give up|quit)(?=\W*$|[!.,])|(?:do not|don['\u2019]t) (?:give up|worry|hesitate|sweat it
        |get me wrong|be (?:afraid|shy|scared|sad|daunted))|(?<!you )(?:do not|don['\u2019]t) know
        |(?:when|because|since|what|where) you (?:do not|don['\u2019]t)
        |must(?:['\u2019]ve| have (?:been|felt|gone|had|taken|made)|-see|-have|-read|-try)
        |(?:that|you|they) must (?:feel|be (?:so|really|very|quite|pretty|such))|(?:it )?must feel (?:so|good
        |great|amazing|awesome)|there must be (?:some|a way)|i must (?:say|admit|confess)
        |(?:than|best|worst|as|hardly) ever|ever since|(?:have|has|had|['\u2019]ve|did|first \w+) ever
        |(?:best|worst|most) [^.!?]{1,40}\bever|if (?:i|you|we) ever|who knows if [^.!?]{1,20}\bever
        |(?:not|isn['\u2019]t|nearly|almost|have|has|had|was|were|he|she) always
        |(?:i|you|we|they|he|she)['\u2019](?:m|re|s|ll|ve|d) (?:\w+ )?always
        |always (?:been|up for|down (?:for|to)|here (?:for|to)|there (?:for|to)|by your side|remember|rooting
        |(?:good|nice|great|happy|lovely) to|a pleasure|love[ds]?)
        |(?:right|just|by|for|fr|until|till|up to|even) now|now (?:and then|that)|(?:but|and) now (?:i|it|we)
        |(?:buy|book|do|eat|get|go|leave|proceed|start)\b[^.!?]{0,40} now(?=\W*$)
        |i (?:do not|don['\u2019]t) want [^.!?]{0,40}\b(?:now|yet)
        |(?:i['\u2019]ll|i will|gonna|going to|best to) (?:\w+ )?(?:make|be) sure
        |keep (?:it |that )?up|keep (?:you|ya) (?:\w+ )?(?:posted|updated|in the loop)
        |keep (?:going|on|pushing|trying|smiling|shining|pursuing)
        |(?:a|another|the|this|my) (?:\w+ )?note(?: to)?|i (?:still )?remember|not only|the only
        |can['\u2019]?t (?:stop|wait|help)|at least i|i confirm|allow(?:s|ed) (?:me|us)
        |you should(?=[.,!])|you should (?:see|try|come|visit|join|totally|definitely|be proud|give it)
        |there should be (?:some|a way)|should be (?:fine|ok|okay|good|great|enough)
        |(?:thanks?|thank you)[^.!?]{0,20} for all[^.!?]*|(?:be|as soon) as you can
        |immer (?:noch|wieder|mehr|besser)|wie immer|nur (?:mal|so|noch)|keine? (?:ahnung|sorge|problem)
        |sollte (?:klappen|gehen|passen|reichen)|je ne (?:sais|pense|crois|comprends|vois) pas
        |il n['\u2019]y a pas|n['\u2019]est-ce pas|ce n['\u2019]est pas (?:grave|mal|vrai|possible)
        |pas de (?:problème|souci)|toujours pas|no (?:pasa nada|hay (?:problema|de qué)|te preocupes)""",
        r"""非常に|だけど|だけれど|少しだけ|(?:よろしく|宜しく|今日は)(?:お願い|おねがい)(?:します|致します|いたします)
        |(?:お話|話し|来|教え)てください?ね|ようにして(?:い?ます|い?ました|い?る|い?た)
        |(?:なって|されて)ほしい|ほしいもの|ぜひ[^。]*ください|不要[紧緊]|不要客[气氣]
        |^(?!.*(?:ください|下さい|なさい|こと|ないで|必ず|変更|になりました)).*
        (?:(?<![てで])[ねよ]|かな|ました|でした|かも|もん|という|と思います)[。!\uff01…ー〜]*$""",
    ),
)
"""Everyday wordings that contain one of these and bind nobody; they are left out before the others count."""
PARTS = re.compile(
    r"(?:thought|action|observation|command|output|input|result|response|discussion|question|answer|user"
    r"|human|assistant|system|info|debug|traceback|example|\w*(?:error|exception|warning))\b[^:]{0,4}:",
    re.IGNORECASE,
)
"""Labels with which agents and logs mark what they write."""
