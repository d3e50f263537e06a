"""Wordings as in :mod:`proxy.core.text.lexicon.binding`, in languages other than English."""

# What makes a German imperative a prohibition, and how French forbids with and without "ne".

_NOT_DE = (
    r"(?:(?!warum|wieso|wenn|falls|dass|ob|was|wo)[^\s,;]+ ){0,4}"
    r"(?:nichts?|nix|nie|kein\w*|niemand\w*)"
)
_NE_FR = r"n(?:e |['\u2019])(?:pas|(?:[\w'\u2019]+ ){1,2}(?:pas|rien|que|aucune?|plus|jamais|à personne))"
_IMPERATIVE_DE = (
    "(?:änder|benutz|buch|entfern|erfind|fass|füg|gib|lass|lösch|mach|nimm|nutz|push|rat|ruf|rühr|sag"
    "|schick|schreib|start|verwend|veränder|zeig|überschreib)e?(?:n sie|t)?"
)
_NO_DE = (
    "(?!(?:aber|also|auch|bekomme|bin|bisher|brauche?|dann|das|finde|gab|gibt|habe?|hatte|heute|ist|kenne"
    r"|leider|noch|oder|sehe|sind|und|war|weil)\b)[a-zäöüß]{3,}(?: bloß| bitte| ja| mir)? keine?[mnrs]?"
)
_SPOKEN_FR = (
    "(?:m['\u2019])?(?!(?:alors|arrive|comprends|donc|encore|fonctionne|marche|mais|même|notre|passe"
    r"|pense|reste|sais|suis|toujours|trouve|vois|votre)\b)[a-zé]{3,}(?:e|ez|s) (?:pas|rien)\b(?! mal\b)"
)
"""A prohibition as people say it: "touche pas"; not "marche pas", which is a report."""

FORBIDS = rf"{_IMPERATIVE_DE} {_NOT_DE}|{_NO_DE}|{_NE_FR}|{_SPOKEN_FR}"
"""What forbids where it begins a clause."""
FIRM = (
    (
        r"""m(?<!ich m)(?:uss|üssen)(?! ich\b)|musst|niemals|auf (?:gar )?keinen fall|unter keinen umständen
    |nicht (?:erlaubt|gestattet|zulässig)|ab (?:jetzt|sofort)|von (?:nun|jetzt) an|künftig|höchstens
    |nicht (?:mehr|länger|später|öfter) als
    |ausschließlich|unbedingt
    |merk(?:e|en sie)? dir|denk(?:e|en sie)? daran|vergiss nicht|d(?:arf(?:st)?|ürfen)\b(?:[^.!?]
    |\.(?=\w)){0,60}\b(?:nichts?|nur|kein\w*|niemand|nirgends)|niemand (?:\w+ )?(?:darf|soll)|debes?|deben
    |nunca|jamás|en ningún caso|bajo ning[uú]n\w*|no est[aá]n? (?:permitid|autorizad)[oa]s?
    |a partir de ahora|de ahora en adelante|como máximo|no más de
    |obligatori\w|nadie (?:más )?(?:puede|debe)|asegúrate|recuerda|no olvides|únicamente|por favor,? no
    |do(?:it|is|ivent)|devez|jamais|pas (?:permise?s?|autorisée?s?)|défense de|personne ne (?:peut|doit)
    |en aucun cas|sous aucun prétexte|désormais|dorénavant
    |à partir de maintenant|au maximum|pas plus de|obligatoire\w*|assure-toi|assurez-vous|rappelle-toi
    |rappelez-vous|souviens-toi|n['\u2019]oublie\w*|uniquement"""
        rf"""|bitte (?:immer|nur|{_NOT_DE})|finger (?:weg )?von|nicht in ?frage|du sollst {_NOT_DE}|stell(?:e
    |en sie|t)? (?:bitte )?sicher|achte(?:n sie|t)? (?:bitte )?(?:dar)?auf|hors de question
    |pas (?:question d\w*|touche)|et {_NE_FR}|mais {_NE_FR}|stp {_NE_FR}|svp {_NE_FR}|surtout {_NE_FR}
    |veille[zr]? à|ni (?:se te ocurra|hablar de)|ten(?:ga|gan)? (?:cuidado|en cuenta)|acuérdate"""
    ),
    r"""必ず|絶対|決して|(?:認め|許さ|許可さ)(?:ら)?れ(?:てい)?(?:ません|ない)
    |ちゃ(?:いけ|なら|だめ|ダメ|駄目)|て(?:は|ちゃ)(?:いけ|なら|だめ|ダメ|駄目)
    |では(?:いけ|なら|だめ|ダメ)|たら(?:だめ|ダメ|駄目)|なければなら|今後|これからは|ないで(?=くだ|下さ|ほし
    |お願|ね|よ|[。!\uff01]|$)|を超えない|覚えておいて|論外|必须|必須|务必|務必|一定要|绝不|絕不|绝对不
    |絕對不|不要|不得|不许|不許|不可以|不允许|不允許|一律|切勿|请勿|請勿|永远|永遠|只能|从现在|從現在|今后
    |以后都|以後都|不超过|不超過|不能超过|不能超過|最多|记住|記住|没(?:有|经)?我?的?(?:同意|批准|许可|允许)
    |沒(?:有|經)?我?的?(?:同意|批准|許可|允許)|确保|確保|遵守
    |な(?<=[うくすつぬむるぐぶ]な)(?<![そよろ]うな)(?=[。!\uff01]|$)""",
)
PLAIN = (
    r"""immer|nie|stets|nur|bevorzug\w+|lieber|vermeide\w*|statt|ohne (?:mein\w*|zu|vorher|(?:rück|nach)frage
    |freigabe|erlaubnis|zustimmung)|bevor du|wenn du|sobald du|jedes mal|mindestens|maximal|soll(?:st|en|t|te
    |test|ten|tet)?|ich (?:esse|trinke|mag|will|möchte|nehme|fliege|rauche|vertrage) (?:\w+ ){0,2}(?:nicht
    |kein\w*)|wir (?:essen|trinken|wollen) (?:\w+ ){0,2}(?:nicht|kein\w*)|bin (?:\w+ )?(?:vegan|vegetarier\w*
    |schwanger|\w+intolerant)|lass\w* [^.!?]{2,60} unverändert|ist (?:\w+ )?veg(?:an
    |etarier\w*)|siempre|solo|sólo|solamente|presupuesto|plazo
    |prefiero|prefiere|evita\w*|en lugar de|sin (?:preguntar|mi|permiso|autorización)|antes de|cuando
    |cada vez|al menos|tiene[ns]? que|hay que|debería[ns]?|no (?:(?:me|te|se|le|lo|la|nos) )*(?!(?:crees
    |dices|entiendes|eres|es|haces|imaginas|puedes|quieres|sabes|tienes|va[sn]?|ves)\b)\w+(?:es|as|ís|éis)
    |no (?:quiero|como|bebo|uso|tomo|tolero|trabajo|puedo (?:comer|beber|tomar|gastar|pagar))|no me gustan?
    |soy (?:\w+ )?(?:vegan[oa]|vegetarian[oa]|celíac[oa])|es (?:\w+ )?(?:vegan[oa]|vegetarian[oa]|celíac[oa])
    |toujours|seulement|préf[èé]r\w+|évite\w*|au lieu de|plutôt que|avant de|sans (?:demander|m(?:on|a)
    |(?:la |l['\u2019])?(?:accord|validation|autorisation))|quand tu|lorsque|chaque fois|au moins|au plus
    |il (?:ne )?faut|devrai(?:s|t|ent)|devriez|suis (?:\w+ )?v(?:é|e)g[aé]\w+|est (?:\w+ )?vég[aé]\w+
    |nenn(?:e|en sie|t)? mich|duz(?:e|t)? mich|siezen sie mich|antwort\w+(?: (?:sie|mir|uns|bitte))* (?:auf
    |in|kurz|knapp)|schreib\w*(?: (?:sie|mir|uns|bitte))* (?:auf|in|kurz|knapp)|auf (?:deutsch
    |\w{4,}isch)(?=\W*$|,? bitte)|ab heute|hör(?:e|en sie|t)? auf|halt(?:e|et|en sie)? (?:dich|euch|sich|es
    |alles)|kurz halten|bestehe\w* auf|ich will,? dass|am liebsten|im format|nachkommastell\w+|erst ab
    |nicht erreichbar|montags|dienstags|mittwochs|donnerstags|freitags|samstags|sonntags|nach jede[rmn]
    |vor jede[rmn]|bei jede[rmn]|mehr als \d[^.!?]* nicht|frag\w* (?:mich|uns|erst|vorher|nach)
    |wenn [^.!?]{3,50}\b(?:hör|stopp|frag|sag|sofort|melde|brich|gib)\w*
    |falls [^.!?]{3,50}\b(?:hör|stopp|frag|sag
    |melde|brich|gib)\w*|freigabe|genehmig\w+|freigegeben|alle [\w-]+ (?:in|auf|im|als|mit)
    |appell?e[zr]?-moi (?!demain|quand|vite|plus|dès|si|au|ce)|tuto[iy]\w+|vouvo[iy]\w+|répond\w*(?:-\w+)? en
    |écri\w+-(?:moi|nous) en|en (?:anglais|français|espagnol|allemand)(?=\W*$| stp| svp)|so(?:is|yez) (?:bref
    |brève|concis|direct|clair|poli)\w*|fai(?:s|tes) (?:court|attention)|arrête[zr]? de|demande[zr]?-moi
    |préviens-(?:moi|nous)|prévenez-(?:moi|nous)|si [^.!?]{3,40}\b(?:arrête|demande|préviens|prévenez
    |dis-(?:le|moi)
    |avísa|avisa|pregunta|dime|detente)\w*|après chaque|avant chaque|dès que (?:tu|vous)|date limite
    |au format|décimales|j['\u2019]aimerais que|à partir d['\u2019]aujourd|je (?:ne |n['\u2019])?(?:mange
    |bois|fume|supporte|tolère|veux|prends|travaille) (?:pas|plus|jamais)|je veux que|respecte[rz]?
    |je ne suis pas (?:joignable|disponible)|mots max\w*|phrases max\w*|lignes max\w*|pages? max\w*
    |tous les \w+ (?:en|au)|toutes les \w+ (?:en|au)|tu ne \w+ (?:pas|rien|plus)|vous ne \w+ (?:pas|rien
    |plus)|on ne \w+ (?:pas|rien|plus)|validée?s? par|rien ne \w+ sans|contésta\w+ en|respónde\w+ en
    |escríbe\w+ en|responde en|contesta en|escribe en|en (?:inglés|español|francés|alemán)(?=\W*$|,? por)
    |tutéame|trátame de|llámame (?!mañana|luego|cuando|al?\b|más|si|en)|sé (?:breve|concis[oa]|clar[oa]
    |direct[oa]|amable)|hazlo (?:corto|breve|simple)|pregúnta(?:me|nos)|avísa(?:me|nos)|en cuanto \w+es
    |después de cada|fecha límite|en formato|decimales|dejad? de|quiero que|me gustaría que|respeta|cuida que
    |máximo|mínimo|que (?:no|nadie) \w+[ea]n?|todos los \w+ en|todas las \w+ en|aprobad[oa]s? por|aprobación
    |visto bueno|requieren?|los (?:lunes|martes|miércoles|jueves|viernes|sábados|domingos) no|a partir de hoy
    |en vez de|allergi(?:es?|sch\w*|ques?)|alergia|alérgic[oa]|intolér\w+|intolerante|eine[rn]? \w*allergie
    |verzichte\w* auf|bitte in \w+|spätestens|vertr(?:ägt|agen) (?:\w+ )?kein\w*|im zweifel|formulier\w*
    |als liste|als tabelle|zöliakie|au plus tard|como muy tarde|como mucho|a más tardar|en cas de doute
    |en caso de duda|coeliaque|sous forme de|en forma de|ne (?:mange|boit|supporte|tolère)(?:nt)? (?:pas
    |plus)|no (?:come|bebe|toma|tolera)n?\b|no puede (?:costar|pasar|superar)|retien(?:s|ez)
    |reste[zr]? (?:bref|poli)|bitte ohne|ich hätte gern,? dass|quisiera que|ni \w+es|pas le droit (?:à|aux|de)
    |ab \d+ uhr [^.!?]*(?:kein|nicht|nur)\w*|nach \d+ uhr [^.!?]*(?:kein|nicht|nur)\w*
    |bleib(?:e|t)? (?:unter|bei)|reste[zr]? sous|quéda\w+ (?:por debajo|en)
    |lass (?:\S+ ){1,3}(?:so|wie|in ruhe)|laisse[zr]? (?:\S+ ){1,3}tel\w*
    |deja (?:\w+ ){1,3}como|erst [^.!?]{3,40}, dann|d['\u2019]abord [^.!?]{3,40}\b(?:ensuite|puis)
    |primero [^.!?]{3,40} (?:luego|después)|aucune? \w+ (?:sans|avant|après)
    |ning[uú]n[oa]? \w+ (?:sin|antes|después)
    |plus d(?:e |['\u2019])\w+ (?:après|avant|sans|le)""",
    r"""^(?:keine?[mnrs]? (?!ahnung|problem|sorge)|nicht\b|pas d(?:e |['\u2019])(?!problème|souci)|记得|記得
    |nada de \w|sin (?!duda|embargo)\w|sans (?!doute|souci|problème)\w|ohne (?!zweifel|witz|scheiß)\w)|常に
    |いつも|だけ|べき(?:です
    |だ)?(?:。|$)|必要があります(?!ね)|アレルギー|なしで(?:お願い|書|答|作|。|$)|のみ|ようにして|避けて
    |てほしい|前に|以下|以上|以内|までに(?:お願|必要|。|$)|までに[^。]{1,12}て(?=くだ|ほし|ね|。|$)|始终|始終
    |予算|期限|预算|預算|总是|總是|只(?:用|要|在|需|[读讀](?![了书書过過]))|読み取り専用
    |仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前
    |请(?:用|把|在|先)|請(?:用|把|在|先)|不能|不准|應[该該當]|应[该当]|过敏|過敏|不耐受|我不(?:吃|喝|抽|接|要
    |想要|喜[欢歡])|别(?<![特分区告个级性类]别)(?!的|人)
    |別(?<![特分區告個級性類]別)(?:[再用改碰刪說給把忘在讓叫發寫做去打]|[動亂告])|呼んで|ベジタリアン
    |食べ(?:られ)?(?:ない|ません)(?:んです|です)?(?=[。、]|$)|飲(?:ま|め)(?:ない|ません)(?:んです
    |です)?(?=[。、]|$)|がいい(?:です)?(?=。|$)|方が好き|ほうが好き|控えて(?=くだ|ね|。|$)|やめて(?=くだ|ね
    |。|$)|最大\d|苦手|こと(?<=[うくすつむるぶぐ]こと)(?=[。!\uff01]|$)|ないこと(?=[。!\uff01]|$)|ないように
    |承認[がを]|許可[がを]|確認[がを]|決まりです|に従っ|にして(?=くだ|ね|お願|。|$)
    |じゃなくて?[^。、も]{2,20}(?:[てで]|です)(?=。|$)|ではなくて?[^。、も]{2,20}(?:[てで]|です)(?=。|$)
    |使わず|で(?<=[語口き式円]で)(?:答|返|話|書|表示|お願|頼|。|$)|円まで|締め?切りは|に収めて
    |たら[^。]{1,30}て(?=くだ|ね|。|$)|れば[^。]{1,30}て(?=くだ|ね|。|$)|場合[はに][^。]{1,30}(?:て
    |こと)(?=くだ|。|$)|たびに[^。]*て(?=くだ|。|$)|毎回|全部[^。]*[てで](?=くだ|。|$)|すべて[^。]*て(?=くだ
    |。|$)|叫我(?![去来來做把先帮幫别])|用[^,\uff0c。]{0,4}[文语語](?:回|答|写|寫|说|說|交流)|吃素|素食
    |只(?:坐|吃|喝|改|看|接受)|如果[^。]{1,20}就|有[^。]{0,8}就[问問告停说說]|完(?:之[后後])?(?:再|要|先)
    |今天起|先[^。,\uff0c]{1,8}再|截止|最晚|最迟|最遲|前(?:先|[给給]|[请請]|必|[别別]|要)|少用|形式(?:回|写
    |寫|输|輸|[给給])|[说說讲講][英中日法德][语語文]|格式(?:用|为|為|是|按)|保留[一二两三四\d]位|简[短洁单]
    |簡[短潔單]|正式[一点點]|都(?<![们們]都)(?:用|要|按|写|寫|必)|经过[^。]{0,6}[批审同]
    |需要?[^。]{0,6}(?:批准|审批|審批|同意|授权)|禁用|そのままに|そのままで
    |なら[^。]{1,20}(?<!かなっ)て(?=くだ|ね|。|$)|了就[^。]*[停问問告]|只发|只發|先に[^。]*てから
    |まず[^。]*てから|保持(?:原|不|[现現])|点[前后]不|點[前後]不|谁都不|誰都不|请记得|請記得|写[中英日]文
    |語氣|语气
    |周[一二三四五六日末]不|週[一二三四五六日末]不|星期[一二三四五六日天]不""",
)
STATED = (
    r"""ab heute|mein\w* \w+ ist|mi \w+ es|m(?:on|a) \w+ est|ich heiße|wir (?:be)?nutzen|nicht \S+,? sondern
    |je m['\u2019]appelle|on utilise|pas \S+ mais|me llamo|usamos|no es \S+ sino""",
    r"""^(?:nein|non|no), (?:der|die|das|le|la|l['\u2019]|el|les|los|c['\u2019]est)\b|ください|お願いします
    |違う、|私の|我的|我姓|我叫|我们用|不对[,\uff0c]|不對[,\uff0c]
    |不是[^。,\uff0c]{1,20}[,\uff0c](?:而)?是""",
)
IDLE = (
    r"""immer (?:noch|wieder|mehr|besser)|wie immer|nur (?:mal|so|noch)|keine? (?:ahnung|sorge|problem)
    |sollte (?:klappen|gehen|passen|reichen)|je ne (?:sais|pense|crois|comprends|vois) pas
    |il n['\u2019]y a pas|n['\u2019]est-ce pas|ce n['\u2019]est pas (?:grave|mal|vrai|possible)
    |pas de (?:problème|souci)|toujours pas|no (?:pasa nada|hay (?:problema|de qué)|te preocupes)|kein(?:e
    |en)? (?:ding|stress|eile|frage|thema|zeit|lust|panik|angst)|müssen sich keine|man muss (?:halt|eben|nur
    |einfach)|ich soll(?:te)?|(?:ist|sind) (?:\w+ )?auf \w+isch|das sollte (?:kein|doch)|(?:das|es
    |da) muss (?:ein|sich um|an)|(?:bin|hab\w*|hat(?:te\w*)?|ist|kostet|macht|seh\w+|sind|steh\w+|wa(?:r|ren)
    |wollt\w+|dacht\w+) (?:[\w]+ ){0,3}(?:nie|nur|immer|mindestens|maximal|stets)|(?:die|der
    |das) \w+ \w+t (?:immer|nie|nur)|immer (?:gerne?|wenn ich)|(?:was|wie|wo|wann|soll|sollte
    |vielleicht) (?:soll|sollte)? ?ich|soll(?:te|ten) (?:doch|eigentlich|gestern|schon)|jedes mal,? wenn ich
    |lieber spät(?: als nie)?|wenn du (?:magst|willst|möchtest|kannst|zeit)|statt [^.!?]* (?:sehe?|kommt
    |steht)(?: ich nur)?|(?:qu['\u2019]est-ce que|que|où|comment|quand) je dois|je dois
    |doit être (?:une? (?:erreur|bug)|fatigué\w*|malade)|vous ne devez pas vous|ça doit (?:être une?|venir)
    |étai\w+ toujours|(?:ai|as|a|ont|avons|suis) jamais|(?:tradu|traduc)\w+ [^.!?]{0,40}\ben \w+
    |ça ne devrait pas|il faut (?:de la |du |des )?(?:patience|courage|temps)|peux seulement|(?:dit
    |que) jamais|jamais (?:été|vu|eu|su|dit|reçu|\w+é[es]{0,2}|\w{3,}u[es]{0,2})|toujours (?:aussi|là|la même
    |le même|un plaisir|quand)|(?:c['\u2019]est|il|elle|me rend\w*|j['\u2019]ai|avec plaisir,) (?:toujours
    |seulement)|\w+ toujours quand|chaque fois que je|ça devrait|je devrais|peut-être|il faut (?:dire|avouer
    |croire)|a pris au moins|quand tu (?:veux|peux)|au lieu de [^.!?]* (?:je vois|j['\u2019]ai|il y a)
    |pas (?:mal|vraiment|encore|sûre?|grave|faux|vrai|besoin)|debe(?:n|ría)? (?:de )?(?:ser|haber
    |estar) (?:un error|cansad\w|enferm\w|bien)|debe[ns]? de|qué debo|quizás? debería|nunca (?:(?:me|te|le|se
    |lo|nos) )?(?:he|ha|han|hemos|había\w*|dij\w+|fui|vi|pude|\w+(?:ó|aron|ieron|aba|ía))|que nunca
    |siempre (?:(?:me|se|lo) )?(?:es|está|pone|cierra|falla|sale|\w+(?:ó|aba|ía))|(?:placer|como), siempre
    |como siempre|solo (?:(?:me|te|se) )?(?:era|fue|quería|tengo una|es una|\w+(?:é|ó|aba|ía))
    |cuando (?:quieras|puedas|era|hago|lo|la |\w+(?:aba|ía|ó|é)\b)|cada vez (?:que (?:lo |la )?(?:hago|abro
    |entro|intento|pulso)|más|menos)|al menos \w+ horas|eso debería|hay que ver|en (?:lugar
    |vez) de [^.!?]* (?:veo|sale)|antes de \w+ \w+[éíó]|no (?:hace falta|puedo más|tiene[ns]? que preocup\w+)
    |hay que (?:tener paciencia|reconocer|decir)|no debería (?:ser|haber)|el error solo|solo puedo
    |siempre fue|nunca (?:(?:me|te|le|se|lo|la|nos) )?\w+í|no quis\w+
    |immer d(?:ie|en|as) (?:gleiche|selbe)n?|nicht (?:so (?:wichtig|schlimm|toll|gut)|schlecht|wirklich|wahr)
    |müssen (?:leider|reden)|muss leider|mach dir (?:nichts|kein\w*)|doit malheureusement
    |ne \w+ai(?:en)?t jamais|sans (?:blague|rire|faute)
    |sin (?:bromas|querer)
    |siempre (?:el|la|lo) mism[oa]|siempre \w+o (?:el|la|un|una)|solo (?:estoy|soy)""",
    r"""非常に|だけど|だけれど|少しだけ|(?:よろしく|宜しく|今日は
    |こん(?:にち|ばん)は[、 ]?|おはようございます[、 ]?)(?:お願い|おねがい)(?:します|致します|いたします)
    |(?:お話|話し|来|教え)てください?ね|ようにして(?:い?ます|い?ました|い?る|い?た)
    |(?:なって|されて)ほしい|ほしいもの|ぜひ[^。]*ください|不要(?:[紧緊]|客[气氣]|着急|[担擔]心|太)|要不要|(?:^
    |, )no (?:(?:me|te|se|le|lo|la|nos) )*(?:es(?! \S+ sino)|est\w+\b(?! (?:permitid|autorizad))|funciona\w*
    |puedo(?! (?:comer|beber|tomar
    |gastar|pagar))|puede|entiendo|encuentro|sé|h[ae]|han|creo|tengo|import\w+|mucho|gracias|necesito|falta
    |veo|recuerdo|sirve|sale|carga|hay(?! que)|soy|sab\w+|pued[ae]s?|tienes|dices)\b|(?:気に|心配|無理
    |遠慮)しないで|必ずしも|絶対(?:パス|値|座標|位置)|絶対[^。]*と思|いつも(?=[^。]*(?:[いる]|ばかり)$)|一つだけ|前に話|寝る前|以下の
    |以下に|だろうな|[别別](?:担心|擔心|客[气氣]|急|着急|怕|介意|[难難][过過])|永[远遠](?:[爱愛]|支持
    |[记記]得)|我(?:只能|最多)|只能[^。]*了$|只在[^。]*出[现現]|今後とも|只能[说說]|不得[不了已]
    |[舍捨恨巴]不得|[总總]是(?:[这這][样樣]|很)|每次(?:[点點][击擊]|打[开開])|应该(?:[^。]*[吧了]|没)|應該沒
    |昨天[^。]*应该|我应该|只用了|至少[^。]*了|之前[^。]*[了过過]|(?:^|我)不能(?:登|用|打[开開]|[访訪][问問]
    |[连連])|我不喜[欢歡][^。]*[天气]|いつも同じ|ただ[^。]*だけ(?=。|$)|^(?!.*(?:ください|下さい|なさい|こと
    |ないで|必ず|変更
    |になりました)).*(?:(?<![てで])[ねよ]|かな|ました|でした|(?<!わっ)た|ただけ(?:です)?|かも|もん|という
    |と思います)[。!\uff01…ー〜]*$""",
)
