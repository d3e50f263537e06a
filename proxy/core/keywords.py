"""The words that make a message's content count for more (DESIGN, appendix).

Compared without case, as substrings: a stem finds its inflections, and a word that several languages share
stands once. Words that are everyday particles in their language ("hecho", "fait") are left out.
"""

_BY_LANGUAGE = {
    "en": "error exception failed success completed done plan task approval denied warning",
    "ja": "エラー 例外 失敗 成功 完了 計画 タスク 承認 拒否 警告",
    "zh-Hans": "错误 异常 失败 成功 完成 计划 任务 批准 拒绝 警告",
    "zh-Hant": "錯誤 異常 失敗 成功 完成 計劃 任務 批准 拒絕 警告",
    "de": "fehler ausnahme fehlgeschlagen erfolg abgeschlossen erledigt aufgabe genehmig abgelehnt warnung",
    "es": "excepción falló fallido éxito completado terminado tarea aprobación denegado advertencia",
    "fr": "erreur échec échoué succès terminé tâche approbation refusé avertissement",
}

KEYWORDS: tuple[str, ...] = tuple(
    dict.fromkeys(word for words in _BY_LANGUAGE.values() for word in words.split())
)
MARKERS: tuple[str, ...] = ("[SYSTEM:", "[User", "[TASK")
APPROVALS: tuple[str, ...] = ("approval", "duck_call")
TOOL_MARKER = "[Tool:"
